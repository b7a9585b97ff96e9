{{- define "a2ad.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "a2ad" .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-a2ad" (.Release.Name | trunc 45 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{/* The alerts expect a scrape job a2ad, which is named after this label. So no value changes it. */}}
{{- define "a2ad.selector" -}}
app.kubernetes.io/name: a2ad
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "a2ad.labels" -}}
{{ include "a2ad.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "a2ad.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "a2ad.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "a2ad.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "a2ad.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "a2ad.agents" -}}
{{- if .Values.agents.files -}}
{{ include "a2ad.fullname" . }}-agents
{{- else -}}
{{ .Values.agents.configMap }}
{{- end -}}
{{- end -}}
