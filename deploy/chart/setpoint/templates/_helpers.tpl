{{- define "setpoint.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride }}
{{- else if contains "setpoint" .Release.Name }}{{ .Release.Name | trunc 44 | trimSuffix "-" }}
{{- else }}{{ printf "%s-setpoint" (.Release.Name | trunc 35 | trimSuffix "-") }}
{{- end }}
{{- end }}

{{- define "setpoint.selector" -}}
app.kubernetes.io/name: setpoint
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "setpoint.labels" -}}
{{ include "setpoint.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: setpoint
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "setpoint.image" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .Values.image.repository }}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The same, with PostgreSQL's client programs. */ -}}
{{- define "setpoint.backupImage" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .Values.backup.repository }}
{{- if .Values.backup.digest }}@{{ .Values.backup.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "setpoint.host" -}}
{{- regexReplaceAll ":[0-9]+$" (urlParse .Values.url).host "" }}
{{- end }}

{{- /* Names that web answers to. A scraper and the kubelet ask by the pod's address. */ -}}
{{- define "setpoint.hosts" -}}
{{- $service := include "setpoint.fullname" . }}
{{- $names := list "$(POD_IP)" "[$(POD_IP)]" (include "setpoint.host" .) $service (printf "%s.%s" $service .Release.Namespace) (printf "%s.%s.svc" $service .Release.Namespace) }}
{{- concat $names .Values.hosts | uniq | join "," }}
{{- end }}

{{- define "setpoint.proxies" -}}
{{- if kindIs "invalid" .Values.proxies }}{{ ternary 1 0 (or .Values.ingress.enabled .Values.gateway.enabled) }}{{ else }}{{ .Values.proxies | int }}{{ end }}
{{- end }}

{{- define "setpoint.database" -}}{{ include "setpoint.fullname" . }}-db{{- end }}
{{- define "setpoint.broker" -}}{{ include "setpoint.fullname" . }}-broker{{- end }}

{{- /* Whether what a migration needs is made by this release: then it cannot run before the rest of it. */ -}}
{{- define "setpoint.comesAlong" -}}
{{- if or .Values.database.cloudNativePG.enabled .Values.secrets.external.enabled }}true{{ end }}
{{- end }}

{{- /* What values.schema.json cannot say. */ -}}
{{- define "setpoint.checked" -}}
{{- if not .Values.url }}{{ fail "url is required: the address people use, such as https://setpoint.example.com" }}{{ end }}
{{- if and .Values.ingress.enabled .Values.gateway.enabled }}{{ fail "ingress.enabled and gateway.enabled are both true: keep one" }}{{ end }}
{{- if and .Values.gateway.enabled (not .Values.gateway.parentRefs) }}{{ fail "gateway.parentRefs is required with gateway.enabled: [{name: public, namespace: gateways}]" }}{{ end }}
{{- if and .Values.broker.bundled.enabled (not .Values.networkPolicy.enabled) }}{{ fail "broker.bundled has no password and needs networkPolicy.enabled" }}{{ end }}
{{- if and .Values.broker.bundled.enabled (not .Values.broker.enabled) }}{{ fail "broker.bundled.enabled is true and broker.enabled is false: keep one" }}{{ end }}
{{- if and .Values.serviceMonitor.enabled (not .Values.secrets.keys.SETPOINT_METRICS_TOKEN) }}{{ fail "serviceMonitor needs secrets.keys.SETPOINT_METRICS_TOKEN: without a token /metrics answers its own machine only" }}{{ end }}
{{- if and .Values.backup.enabled (not .Values.backup.claim) }}{{ fail "backup.claim is required with backup.enabled: the name of a PersistentVolumeClaim that files are kept in" }}{{ end }}
{{- with .Values.web.autoscaling }}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) }}{{ fail "web.autoscaling.minReplicas is more than maxReplicas" }}{{ end }}
{{- end }}
{{- with .Values.database.cloudNativePG }}
{{- if and .enabled $.Values.secrets.owner.existing }}{{ fail "secrets.owner.existing and database.cloudNativePG are both given: the Cluster's owner has a Secret of its own" }}{{ end }}
{{- end }}
{{- with .Values.secrets.external }}
{{- if .enabled }}
{{- if not .storeName }}{{ fail "secrets.external.storeName is required" }}{{ end }}
{{- if not .entry }}{{ fail "secrets.external.entry is required" }}{{ end }}
{{- if and (not .helmEntry) (gt (int $.Values.helm.replicas) 0) }}{{ fail "secrets.external.helmEntry is required unless helm.replicas is 0" }}{{ end }}
{{- if and (not .ownerEntry) $.Values.secrets.owner.existing }}{{ fail "secrets.external.ownerEntry is required with secrets.owner.existing" }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Variable → {secret, key}, of what every process is given. */ -}}
{{- define "setpoint.given" -}}
{{- $database := .Values.database.cloudNativePG }}
{{- range $variable, $key := .Values.secrets.keys }}
{{- if and (eq $variable "SETPOINT_DATABASE_URL") $database.enabled }}
{{ $variable }}: {secret: {{ $database.applicationSecret | default (printf "%s-app" (include "setpoint.database" $)) }}, key: uri}
{{- else if and (eq $variable "SETPOINT_BROKER_URL") (or $.Values.broker.bundled.enabled (not $.Values.broker.enabled)) }}
{{- else if $key }}
{{ $variable }}: {secret: {{ $.Values.secrets.existing }}, key: {{ $key | quote }}}
{{- end }}
{{- end }}
{{- end }}

{{- /* The same of one component (`component` of a list of root and component). */ -}}
{{- define "setpoint.givenTo" -}}
{{- $root := index . 0 }}{{ $component := index . 1 }}
{{- $given := include "setpoint.given" $root | fromYaml }}
{{- $database := $root.Values.database.cloudNativePG }}
{{- if eq $component "helm" }}
{{- $_ := set $given "SETPOINT_HELM_CREDENTIAL_KEYS" (dict "secret" $root.Values.secrets.helm.existing "key" $root.Values.secrets.helm.key) }}
{{- end }}
{{- if eq $component "owner" }}
{{- if and $database.enabled $database.applicationSecret }}
{{- $_ := set $given "SETPOINT_APPLICATION_DATABASE_URL" (dict "secret" $database.applicationSecret "key" "uri") }}
{{- $_ := set $given "SETPOINT_DATABASE_URL" (dict "secret" (printf "%s-app" (include "setpoint.database" $root)) "key" "uri") }}
{{- else if $root.Values.secrets.owner.existing }}
{{- $_ := set $given "SETPOINT_DATABASE_URL" (dict "secret" $root.Values.secrets.owner.existing "key" $root.Values.secrets.owner.databaseKey) }}
{{- $_ := set $given "SETPOINT_APPLICATION_DATABASE_URL" (dict "secret" $root.Values.secrets.owner.existing "key" $root.Values.secrets.owner.applicationKey) }}
{{- end }}
{{- end }}
{{- toYaml $given }}
{{- end }}

{{- /* A volume with one file for each secret variable: files are not inherited by what a process starts. */ -}}
{{- define "setpoint.secretVolume" -}}
{{- $given := include "setpoint.givenTo" . | fromYaml }}
projected:
  defaultMode: 0440
  sources:
    {{- range $variable, $from := $given }}
    - secret: {name: {{ $from.secret }}, items: [{key: {{ $from.key | quote }}, path: {{ $variable }}}]}
    {{- end }}
{{- end }}

{{- define "setpoint.env" -}}
{{- $root := index . 0 }}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: SETPOINT_EMBEDDED, value: "false"}
- {name: SETPOINT_VAR, value: /var/lib/setpoint/own}
- {name: SETPOINT_URL, value: {{ $root.Values.url | quote }}}
- {name: SETPOINT_HOSTS, value: {{ include "setpoint.hosts" $root | quote }}}
- {name: SETPOINT_PROXIES, value: {{ include "setpoint.proxies" $root | quote }}}
{{- if not $root.Values.broker.enabled }}
- {name: SETPOINT_BROKER_URL, value: none}
- {name: SETPOINT_STANDBY_ALIVE, value: {{ ($root.Files.Get "processes.yaml" | fromYaml).standbyAlive.file }}}
{{- else if $root.Values.broker.bundled.enabled }}
- {name: SETPOINT_BROKER_URL, value: "redis://{{ include "setpoint.broker" $root }}:6379/0"}
{{- end }}
{{- range $name, $value := $root.Values.settings }}
- {name: {{ $name }}, value: {{ ternary ($value | int64 | toString) ($value | toString) (and (kindIs "float64" $value) (eq (floor $value) $value)) | quote }}}
{{- end }}
{{- range $variable, $_ := include "setpoint.givenTo" . | fromYaml }}
- {name: {{ $variable }}_FILE, value: /run/secrets/setpoint/{{ $variable }}}
{{- end }}
{{- end }}

{{- define "setpoint.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "setpoint.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* What every container of the image has: list of root, component, and the name of the volume with its secrets. Of backup
       the image is another one. */ -}}
{{- define "setpoint.container" -}}
{{- $root := index . 0 }}
image: {{ if eq (index . 2) "backup" }}{{ include "setpoint.backupImage" $root }}{{ else }}{{ include "setpoint.image" $root }}{{ end }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  {{- include "setpoint.containerSecurity" $root | nindent 2 }}
env:
  {{- include "setpoint.env" . | nindent 2 }}
volumeMounts:
  - {name: scratch, mountPath: /tmp}
  - {name: own, mountPath: /var/lib/setpoint}
  - {name: {{ index . 2 }}, mountPath: /run/secrets/setpoint, readOnly: true}
  {{- with $root.Values.pods.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* What every pod of the image has, in its spec. */ -}}
{{- define "setpoint.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . }}}
  {{- end }}
{{- end }}
{{- with .Values.pods.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.pods.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.pods.hostAliases }}
hostAliases: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- include "setpoint.podSecurity" . | nindent 2 }}
{{- end }}

{{- define "setpoint.volumes" -}}
{{- $root := index . 0 }}
- {name: scratch, emptyDir: {sizeLimit: {{ $root.Values.pods.scratchSize }}}}
- {name: own, emptyDir: {sizeLimit: 16Mi}}
{{- with $root.Values.pods.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
