#!/bin/bash
# Spark starts executor pods with the single argument `executor`, and everything else in the environment.
# Any other command is run as it is: drivers, recordings and replays.
set -euo pipefail

if [ "${1:-}" != executor ]; then
  exec /usr/bin/tini -s -- "$@"
fi

# SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, …: one option each, in this order. Their values may hold spaces.
options=()
for ((number = 0; ; number++)); do
  name=SPARK_JAVA_OPT_$number
  [ -n "${!name+set}" ] || break
  options+=("${!name}")
done

exec /usr/bin/tini -s -- "$JAVA_HOME/bin/java" "${options[@]}" \
  "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
  -cp "${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$SPARK_HOME/jars/*" \
  org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
  --driver-url "$SPARK_DRIVER_URL" \
  --executor-id "$SPARK_EXECUTOR_ID" \
  --cores "$SPARK_EXECUTOR_CORES" \
  --app-id "$SPARK_APPLICATION_ID" \
  --hostname "$SPARK_EXECUTOR_POD_IP" \
  --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
  --podName "$SPARK_EXECUTOR_POD_NAME"
