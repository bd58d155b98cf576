{{/* The name of all objects, and the host of the seeds. A DNS label, with room for "-http" and the number of a pod. */}}
{{- define "roost.name" -}}
{{ .Release.Name | replace "." "-" | trunc 50 | trimSuffix "-" }}
{{- end }}

{{/* The name of the cluster, which also begins its keys in Redis: releases that share a key or a Redis are clusters of their own. */}}
{{- define "roost.cluster" -}}
{{- $name := printf "%s.%s" .Release.Namespace (include "roost.name" .) -}}
{{- if gt (len $name) 50 }}{{ $name | trunc 33 }}-{{ $name | sha256sum | trunc 16 }}{{ else }}{{ $name }}{{ end -}}
{{- end }}

{{- define "roost.selector" -}}
app.kubernetes.io/name: roost
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "roost.labels" -}}
{{ include "roost.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "roost.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* A setting as a flag. Numbers as JSON: as text, 1048576 would be 1.048576e+06. */}}
{{- define "roost.flag" -}}
{{- if kindIs "slice" .value }}{{ printf "--%s=%s" .name (join "," .value) | quote }}
{{- else if kindIs "string" .value }}{{ printf "--%s=%s" .name .value | quote }}
{{- else }}{{ printf "--%s=%s" .name (toJson .value) | quote }}
{{- end }}
{{- end }}

{{- define "roost.agent" -}}
name: roost
image: {{ include "roost.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args:
  - agent
  - --id=$(POD_NAME)
  - --cluster={{ include "roost.cluster" . }}
  - --bind=0.0.0.0:7946
  - --advertise=[$(POD_IP)]:7946
  - --join={{ include "roost.name" . }}:7946
  - --http=0.0.0.0:8401 # the kubelet's probes do not reach loopback
  - --http-token-file=/etc/roost/http.token
  - --key-file=/etc/roost/gossip.key
  - --require-key
  - --log-format=json
  {{- if ge (int .Values.replicas) 3 }}
  - --min-members=2 # a node that finds no other one, since DNS does not answer, say, owns nothing
  {{- end }}
  - --shutdown-delay={{ .Values.shutdownDelay }} # until Services send no more requests
  {{- with .Values.apiPort }}
  - --api-addr=[$(POD_IP)]:{{ . }} # returned by lookups
  {{- end }}
  {{- if .Values.redis }}
  - --redis-file=/etc/roost/redis.url
  {{- end }}
  {{- range $name, $value := .Values.settings }}
  - {{ include "roost.flag" (dict "name" $name "value" $value) }}
  {{- end }}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - name: ROOST_ZONE # pods have this label from Kubernetes 1.35 on; before, the node has no zone
    valueFrom: {fieldRef: {fieldPath: "metadata.labels['topology.kubernetes.io/zone']"}}
ports:
  - {name: gossip, containerPort: 7946, protocol: UDP}
  - {name: gossip-stream, containerPort: 7946, protocol: TCP}
  - {name: http, containerPort: 8401, protocol: TCP}
startupProbe: # joining may take as long as seeds need to start
  httpGet: {path: /healthz, port: http}
  periodSeconds: 1
  failureThreshold: 30
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
livenessProbe: # of this process alone: failures of peers or Redis do not restart it
  httpGet: {path: /healthz, port: http}
  periodSeconds: 10
  failureThreshold: 3
lifecycle:
  preStop: # when the pod is deleted; with a media server, while that gets its SIGTERM
    exec:
      command: [/roost, drain, {{ if .Values.redis }}--rooms, --deadline{{ else }}--timeout{{ end }}, {{ .Values.drainTimeout }}, --token-file, /etc/roost/http.token]
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  runAsNonRoot: true
  readOnlyRootFilesystem: true
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: secrets, mountPath: /etc/roost, readOnly: true}
{{- end }}
