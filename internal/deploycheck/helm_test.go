package deploycheck

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = repository + "/deploy/helm/a2ad"

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func readValues(t *testing.T, text string) chartutil.Values {
	t.Helper()
	values, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return values
}

// rendered returns the output of helm template, by kind and name.
func rendered(t *testing.T, c *chart.Chart, release, values string) (map[string]runtime.Object, error) {
	t.Helper()
	all, err := chartutil.ToRenderValues(c, readValues(t, values),
		chartutil.ReleaseOptions{Name: release, Namespace: "a2ad", IsInstall: true}, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	strict, found := decoder(t), map[string]runtime.Object{}
	for path, text := range files {
		if !strings.HasSuffix(path, ".yaml") {
			continue
		}
		for _, doc := range releaseutil.SplitManifests(text) {
			object, _, err := strict.Decode([]byte(doc), nil, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", path, err, doc)
			}
			name := object.GetObjectKind().GroupVersionKind().Kind + " " + object.(metav1.Object).GetName()
			if found[name] != nil {
				return nil, fmt.Errorf("%s: there are two of %s", path, name)
			}
			found[name] = object
		}
	}
	return found, nil
}

// Everything that the chart can create.
const everything = `
agents: {files: {echo.yaml: "name: echo"}}
ingress: {enabled: true, className: nginx, hosts: [a.example.com], tls: [{secretName: t, hosts: [a.example.com]}]}
gateway: {enabled: true, parentRefs: [{name: public, namespace: gateways}], hostnames: [a.example.com]}
autoscaling: {enabled: true}
serviceMonitor: {enabled: true, labels: {release: prometheus}}
alerts: {enabled: true, labels: {release: prometheus}}
dashboard: {enabled: true}
`

func TestHelmLintAcceptsTheChart(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"{}", everything} {
		linted := lint.All(chartDir, readValues(t, values), "a2ad", true)
		for _, m := range linted.Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("with %s: %v", values, m)
			}
		}
	}
}

// Each row sets values, and checks the objects that follow from them.
func TestHelmValues(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		release, values string
		check           func(*testing.T, map[string]runtime.Object)
	}{
		"another release": {release: "prod", check: func(t *testing.T, all map[string]runtime.Object) {
			must[*appsv1.Deployment](t, all, "Deployment prod-a2ad")
			must[*batchv1.Job](t, all, "Job prod-a2ad-migrate")
		}},
		"a name": {values: `{fullnameOverride: tasks}`, check: func(t *testing.T, all map[string]runtime.Object) {
			must[*appsv1.Deployment](t, all, "Deployment tasks")
			must[*corev1.Service](t, all, "Service tasks-admin")
		}},
		"image": {values: `{image: {repository: r.example.com/a2ad, tag: 1.2.3, pullSecrets: [registry]}}`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				wantImages(t, all, "r.example.com/a2ad:1.2.3")
				for _, account := range []string{"a2ad", "a2ad-migrate"} {
					got := must[*corev1.ServiceAccount](t, all, "ServiceAccount "+account).ImagePullSecrets
					if len(got) != 1 || got[0].Name != "registry" {
						t.Errorf("%s pulls with %v", account, got)
					}
				}
			}},
		"digest": {values: `{image: {tag: 1.2.3, digest: "sha256:` + strings.Repeat("ab", 32) + `"}}`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				wantImages(t, all, "ghcr.io/a2ad/a2ad@sha256:"+strings.Repeat("ab", 32))
			}},
		"settings": {values: `{settings: {A2AD_PUBLIC_URL: "https://a.example.com", A2AD_DB_POOL: "12"},
			secretSettings: [signing], drain: {delaySeconds: 7, timeoutSeconds: 120}}`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				data := must[*corev1.ConfigMap](t, all, "ConfigMap a2ad-settings").Data
				for name, want := range map[string]string{"A2AD_PUBLIC_URL": "https://a.example.com",
					"A2AD_DB_POOL": "12", "A2AD_DRAIN_DELAY": "7s", "A2AD_DRAIN_TIMEOUT": "120s"} {
					if data[name] != want {
						t.Errorf("%s is %q, want %q", name, data[name], want)
					}
				}
				pod := server(t, all)
				if got := *pod.TerminationGracePeriodSeconds; got != 147 {
					t.Errorf("a pod has %d seconds to stop", got)
				}
				from := pod.Containers[0].EnvFrom
				if len(from) != 2 || from[1].SecretRef.Name != "signing" {
					t.Errorf("the settings come from %v", from)
				}
			}},
		"agents": {values: `{agents: {files: {echo.yaml: "name: echo\nexecutor: {echo: {}}\n"}}}`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				data := must[*corev1.ConfigMap](t, all, "ConfigMap a2ad-agents").Data
				if data["echo.yaml"] != "name: echo\nexecutor: {echo: {}}\n" {
					t.Errorf("the agent file is %q", data)
				}
			}},
		"additions": {values: `
extraEnv: [{name: OTEL_EXPORTER_OTLP_HEADERS, valueFrom: {secretKeyRef: {name: otel, key: headers}}}]
extraVolumes: [{name: tls, secret: {secretName: tls}}]
extraVolumeMounts: [{name: tls, mountPath: /etc/tls, readOnly: true}]
podLabels: {team: tasks}
podAnnotations: {example.com/note: "1"}
priorityClassName: high
nodeSelector: {pool: tasks}
tolerations: [{key: pool, operator: Exists}]
affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}}
spread: []`, check: checkAdditions},
		"no migration, no policies": {values: `{migrate: {enabled: false}, networkPolicy: {enabled: false},
			disruptionBudget: {enabled: false}}`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				for _, name := range []string{"Job a2ad-migrate", "ServiceAccount a2ad-migrate", "NetworkPolicy a2ad",
					"PodDisruptionBudget a2ad"} {
					if all[name] != nil {
						t.Errorf("there is a %s", name)
					}
				}
			}},
		"network": {values: `networkPolicy:
  clients: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
  databasePort: 6432
  extraEgress: [{to: [{podSelector: {matchLabels: {app: agent}}}], ports: [{port: 9000}]}]`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				spec := must[*networkingv1.NetworkPolicy](t, all, "NetworkPolicy a2ad").Spec
				from := spec.Ingress[0].From
				if len(from) != 1 || from[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "ingress" {
					t.Errorf("clients are %v", from)
				}
				if len(spec.Egress) != 4 || spec.Egress[1].Ports[0].Port.IntValue() != 6432 ||
					spec.Egress[3].Ports[0].Port.IntValue() != 9000 {
					t.Errorf("outgoing traffic: %v", spec.Egress)
				}
			}},
		"queue age, external": {values: `{autoscaling: {enabled: true, metric: {selector: {agent: a}}}}`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				m := scaled(t, all).Metrics[0].External
				if m == nil || m.Metric.Name != "a2ad_queue_oldest_seconds" || m.Target.Value.String() != "30" ||
					m.Metric.Selector.MatchLabels["agent"] != "a" {
					t.Errorf("the metric is %v", m)
				}
			}},
		"queue age, per pod": {values: `{autoscaling: {enabled: true, metric: {type: Pods, target: "5"}}}`,
			check: func(t *testing.T, all map[string]runtime.Object) {
				m := scaled(t, all).Metrics[0].Pods
				if m == nil || m.Target.AverageValue.String() != "5" || m.Metric.Selector != nil {
					t.Errorf("the metric is %v", m)
				}
			}},
		"everything":                  {values: everything, check: checkEverything},
		"everything, another release": {release: "prod", values: everything},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.release == "" {
				tt.release = "a2ad"
			}
			all, err := rendered(t, loadChart(t), tt.release, tt.values)
			if err != nil {
				t.Fatal(err)
			}
			checkReferences(t, all)
			if tt.check != nil {
				tt.check(t, all)
			}
		})
	}
}

func server(t *testing.T, all map[string]runtime.Object) corev1.PodSpec {
	t.Helper()
	return must[*appsv1.Deployment](t, all, "Deployment a2ad").Spec.Template.Spec
}

func wantImages(t *testing.T, all map[string]runtime.Object, want string) {
	t.Helper()
	job := must[*batchv1.Job](t, all, "Job a2ad-migrate").Spec.Template.Spec
	for _, pod := range []corev1.PodSpec{server(t, all), job} {
		if got := pod.Containers[0].Image; got != want {
			t.Errorf("%s has the image %s, want %s", pod.Containers[0].Name, got, want)
		}
	}
}

// scaled returns the autoscaler, which alone decides the number of replicas.
func scaled(t *testing.T, all map[string]runtime.Object) autoscalingv2.HorizontalPodAutoscalerSpec {
	t.Helper()
	if n := must[*appsv1.Deployment](t, all, "Deployment a2ad").Spec.Replicas; n != nil {
		t.Errorf("the Deployment wants %d replicas, too", *n)
	}
	return must[*autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler a2ad").Spec
}

func checkAdditions(t *testing.T, all map[string]runtime.Object) {
	pod := server(t, all)
	env := pod.Containers[0].Env
	if last := env[len(env)-1]; last.Name != "OTEL_EXPORTER_OTLP_HEADERS" ||
		last.ValueFrom.SecretKeyRef.Name != "otel" {
		t.Errorf("the environment is %v", env)
	}
	if m := pod.Containers[0].VolumeMounts; len(m) != 4 || m[3].Name != "tls" {
		t.Errorf("it mounts %v", m)
	}
	if v := pod.Volumes; len(v) != 4 || v[3].Secret.SecretName != "tls" {
		t.Errorf("the volumes are %v", v)
	}
	template := must[*appsv1.Deployment](t, all, "Deployment a2ad").Spec.Template
	if template.Labels["team"] != "tasks" || template.Annotations["example.com/note"] != "1" {
		t.Errorf("labels %v, annotations %v", template.Labels, template.Annotations)
	}
	if pod.PriorityClassName != "high" || pod.NodeSelector["pool"] != "tasks" || len(pod.Tolerations) != 1 ||
		pod.Affinity == nil || pod.Affinity.PodAntiAffinity == nil || len(pod.TopologySpreadConstraints) != 0 {
		t.Errorf("the pod is placed by %+v", pod)
	}
}

// checkEverything compares the objects of the operators with the files that other platforms use.
func checkEverything(t *testing.T, all map[string]runtime.Object) {
	rules, err := os.ReadFile(filepath.Join(repository, "deploy", "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(rules, &want); err != nil || len(want.Groups) == 0 {
		t.Fatalf("%d groups of rules: %v", len(want.Groups), err)
	}
	rule := must[*monitoringv1.PrometheusRule](t, all, "PrometheusRule a2ad")
	for _, d := range differences(t, &monitoringv1.PrometheusRule{ObjectMeta: rule.ObjectMeta, TypeMeta: rule.TypeMeta,
		Spec: want}, rule) {
		t.Errorf("the rules are not those of Prometheus: %s", d)
	}
	panels, err := os.ReadFile(filepath.Join(repository, "deploy", "grafana", "a2ad.json"))
	if err != nil {
		t.Fatal(err)
	}
	dashboard := must[*corev1.ConfigMap](t, all, "ConfigMap a2ad-dashboard")
	if got := dashboard.Data["a2ad.json"]; strings.TrimSpace(got) != strings.TrimSpace(string(panels)) {
		t.Error("the dashboard is not that of Grafana")
	}
	if dashboard.Labels["grafana_dashboard"] != "1" || rule.Labels["release"] != "prometheus" {
		t.Errorf("labels of the dashboard %v, of the rules %v", dashboard.Labels, rule.Labels)
	}
	route := must[*gatewayv1.HTTPRoute](t, all, "HTTPRoute a2ad").Spec
	for _, r := range route.Rules {
		if r.Timeouts == nil || r.Timeouts.Request == nil || *r.Timeouts.Request != "0s" {
			t.Errorf("the route ends streams: %+v", r)
		}
	}
	if _, ok := all["PodDisruptionBudget a2ad"].(*policyv1.PodDisruptionBudget); !ok {
		t.Error("no PodDisruptionBudget")
	}
}

// The schema refuses these values and names the fault.
func TestHelmRefusesBadValues(t *testing.T) {
	t.Parallel()
	c := loadChart(t)
	for _, tt := range []struct{ values, want string }{
		{`{replica: 3}`, "replica"},
		{`{replicas: -1}`, "replicas"},
		{`{replicas: "3"}`, "replicas"},
		{`{image: {digest: "sha256:12"}}`, "digest"},
		{`{image: {pullPolicy: Sometimes}}`, "pullPolicy"},
		{`{secrets: {server: {password: x}}}`, "server"},
		{`{secrets: {databaseURL: "postgres://u:p@db/a2ad"}}`, "databaseURL"},
		{`{settings: {A2AD_DATABASE_URL: "postgres://u:p@db/a2ad"}}`, "A2AD_DATABASE_URL"},
		{`{settings: {A2AD_KEYS: "k1:x"}}`, "A2AD_KEYS"},
		{`{settings: {A2AD_LISTEN: ":80"}}`, "A2AD_LISTEN"},
		{`{settings: {PUBLIC_URL: "https://a.example.com"}}`, "PUBLIC_URL"},
		{`{settings: {A2AD_DB_POOL: 12}}`, "A2AD_DB_POOL"}, // Helm writes large numbers as 1e+06
		{`{extraEnv: [{name: A2AD_KEYS, value: "k1:x"}]}`, "extraEnv"},
		{`{extraEnv: [{value: x}]}`, "name"},
		{`{agents: {files: {echo.txt: x}}}`, "echo.txt"},
		{`{drain: {delaySeconds: 1}}`, "delaySeconds"},
		{`{drain: {timeoutSeconds: 20s}}`, "timeoutSeconds"},
		{`{service: {port: 70000}}`, "port"},
		{`{ingress: {enabled: true}}`, "hosts"},
		{`{gateway: {enabled: true, hostnames: [a.example.com]}}`, "parentRefs"},
		{`{gateway: {enabled: true, parentRefs: [{name: public}]}}`, "hostnames"},
		{`{networkPolicy: {clients: []}}`, "clients"}, // would admit everyone
		{`{disruptionBudget: {minAvailable: 0}}`, "minAvailable"},
		{`{autoscaling: {metric: {type: Resource}}}`, "type"},
		{`{autoscaling: {metric: {target: soon}}}`, "target"},
		{`{serviceMonitor: {interval: often}}`, "interval"},
		{`{serviceMonitor: true}`, "serviceMonitor"},
	} {
		if _, err := rendered(t, c, "a2ad", tt.values); err == nil || !strings.Contains(err.Error(), tt.want) ||
			!strings.Contains(err.Error(), "schema") {
			t.Errorf("%s: %v", tt.values, err)
		}
	}
}

// The package contains the files that other platforms use, and the version of the newest release.
func TestHelmPackage(t *testing.T) {
	t.Parallel()
	archive, err := chartutil.Save(loadChart(t), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	packed, err := loader.LoadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, f := range packed.Files {
		files[f.Name] = f.Data
	}
	for name, source := range map[string]string{"files/alerts.yaml": "prometheus/alerts.yaml",
		"files/dashboard.json": "grafana/a2ad.json"} {
		want, err := os.ReadFile(filepath.Join(repository, "deploy", source))
		if err != nil || len(want) == 0 || !bytes.Equal(files[name], want) {
			t.Errorf("%s is not deploy/%s: %v", name, source, err)
		}
	}
	changes, err := os.ReadFile(filepath.Join(repository, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## \[(\d+\.\d+\.\d+)\]`).FindSubmatch(changes)
	if m := packed.Metadata; newest == nil || m.AppVersion != string(newest[1]) || m.Version != string(newest[1]) {
		t.Errorf("the chart has version %s and appVersion %s; the newest release is %q", m.Version, m.AppVersion,
			newest)
	}
}
