// What Prometheus itself makes of rules and expressions: reads from stdin what was scraped, and answers which
// series each expression has at `at_s`.
//
//	{"rules": FILE, "expressions": {NAME: PROMQL}, "at_s": SECONDS, "scrapes": [{"at_s": SECONDS, "text": TEXT}]}
//	{"found": {NAME: [{LABEL: VALUE}]}, "problems": [SENTENCE]}
//
// The alerts of the file are expressions, too.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

type scrape struct {
	AtS  float64 `json:"at_s"`
	Text string  `json:"text"`
}

type question struct {
	Rules       string            `json:"rules"`
	Expressions map[string]string `json:"expressions"`
	AtS         float64           `json:"at_s"`
	Scrapes     []scrape          `json:"scrapes"`
}

type answer struct {
	Found    map[string][]map[string]string `json:"found"`
	Problems []string                       `json:"problems"`
}

func main() {
	var asked question
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	said := answer{Found: map[string][]map[string]string{}, Problems: []string{}}
	groups, wrong := rulefmt.ParseFile(asked.Rules, false)
	for _, one := range wrong {
		said.Problems = append(said.Problems, one.Error())
	}
	if groups != nil {
		for _, group := range groups.Groups {
			for _, rule := range group.Rules {
				asked.Expressions[rule.Alert] = rule.Expr
			}
		}
	}
	stored := series{}
	for _, one := range asked.Scrapes {
		check(stored.scrape(milliseconds(one.AtS), one.Text))
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1_000_000, Timeout: time.Minute})
	for name, expression := range asked.Expressions {
		query, err := engine.NewInstantQuery(context.Background(), stored, nil, expression, time.UnixMilli(milliseconds(asked.AtS)))
		if err != nil {
			said.Problems = append(said.Problems, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		result := query.Exec(context.Background())
		vector, err := result.Vector()
		if err != nil {
			said.Problems = append(said.Problems, fmt.Sprintf("%s: %v", name, err))
			continue
		}
		found := []map[string]string{}
		for _, sample := range vector {
			found = append(found, sample.Metric.Map())
		}
		said.Found[name] = found
		query.Close()
	}
	check(json.NewEncoder(os.Stdout).Encode(said))
}

// Series by their labels, each with its samples: all that the engine has to read from.
type series map[string]*one

type one struct {
	labels  labels.Labels
	samples []chunks.Sample
}

type sample struct {
	chunks.Sample // histograms are not there
	at            int64
	value         float64
}

func (s sample) T() int64                 { return s.at }
func (s sample) F() float64               { return s.value }
func (s sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample      { return s }

// One scrape, with the labels and the series `up` that Prometheus adds.
func (s series) scrape(at int64, text string) error {
	var parser expfmt.TextParser
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		return err
	}
	s.add("up", nil, sample{at: at, value: 1})
	for name, family := range families {
		for _, metric := range family.Metric {
			value := metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + metric.GetUntyped().GetValue()
			s.add(name, metric.Label, sample{at: at, value: value})
		}
	}
	return nil
}

func (s series) add(name string, pairs []*dto.LabelPair, found sample) {
	of := labels.NewBuilder(labels.FromStrings(labels.MetricName, name, "job", "headroom", "instance", "127.0.0.1:1"))
	for _, pair := range pairs {
		of.Set(pair.GetName(), pair.GetValue())
	}
	key := of.Labels().String()
	if s[key] == nil {
		s[key] = &one{labels: of.Labels()}
	}
	s[key].samples = append(s[key].samples, found)
}

func (s series) Querier(from, to int64) (storage.Querier, error) {
	return querier{storage.NoopQuerier(), s}, nil
}

type querier struct {
	storage.Querier
	all series
}

func (q querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := []storage.Series{}
	for _, each := range q.all {
		if matches(each.labels, matchers) {
			found = append(found, storage.NewListSeries(each.labels, each.samples))
		}
	}
	return &set{found: found, at: -1}
}

func matches(of labels.Labels, matchers []*labels.Matcher) bool {
	for _, matcher := range matchers {
		if !matcher.Matches(of.Get(matcher.Name)) {
			return false
		}
	}
	return true
}

type set struct {
	found []storage.Series
	at    int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.found) }
func (s *set) At() storage.Series                { return s.found[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

func milliseconds(atS float64) int64 { return int64(atS * 1000) }

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
