{{/* Labels of a component's objects: include "labels" "agent" */}}
{{- define "labels" -}}
app.kubernetes.io/name: inference-cache
app.kubernetes.io/component: {{ . }}
{{- end -}}

{{/* An image: include "image" (list $ "agent") */}}
{{- define "image" -}}
{{- $ := index . 0 -}}
{{ $.Values.image.registry }}/{{ index . 1 }}:{{ $.Values.image.tag | default $.Chart.AppVersion }}
{{- end -}}

{{/* What all pods have in common: include "pod" (list $ .Values.agent "agent") */}}
{{- define "pod" -}}
{{- $ := index . 0 -}}
{{- $values := index . 1 -}}
automountServiceAccountToken: true
{{- with $.Values.priorityClass.name }}
priorityClassName: {{ . }}
{{- end }}
{{- with $.Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* Replicas on different nodes where possible: include "spread" "aggregator" */}}
{{- define "spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{ include "labels" . | nindent 8 }}
{{- end -}}

{{/* Name, image and restrictions of a container: include "container" (list $ "agent") */}}
{{- define "container" -}}
{{- $ := index . 0 -}}
name: {{ index . 1 }}
image: {{ include "image" . }}
{{- with $.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{/* Environment of a container: include "env" .Values.agent */}}
{{- define "env" -}}
- name: GOMEMLIMIT
  value: {{ .goMemoryLimit | quote }}
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An account that gets its token only where a pod asks for it: include "account" (list $ "agent" "NAME") */}}
{{- define "account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ index . 2 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels: {{ include "labels" (index . 1) | nindent 4 }}
automountServiceAccountToken: false
{{- end -}}

{{/* Binds ClusterRole inference-cache-COMPONENT to an account: include "binding" (list $ "agent" "ACCOUNT") */}}
{{- define "binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: inference-cache-{{ index . 1 }}
  labels: {{ include "labels" (index . 1) | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: inference-cache-{{ index . 1 }}
subjects:
  - kind: ServiceAccount
    name: {{ index . 2 }}
    namespace: {{ (index . 0).Release.Namespace }}
{{- end -}}

{{/* Lets one replica at a time be evicted: include "budget" (list $ "aggregator") */}}
{{- define "budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: inference-cache-{{ index . 1 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels: {{ include "labels" (index . 1) | nindent 4 }}
spec:
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{ include "labels" (index . 1) | nindent 6 }}
{{- end -}}

{{/* A secret of cert-manager, mounted: include "tls.volume" "SECRET" */}}
{{- define "tls.volume" -}}
- name: tls
  secret:
    secretName: {{ . }}
{{- end -}}
{{- define "tls.mount" -}}
- name: tls
  mountPath: /var/run/secrets/tls
  readOnly: true
{{- end -}}
