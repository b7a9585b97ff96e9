package deploycheck

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// The ways in which the chart may differ from the base of kustomize: "field: value of kustomize → value of the chart".
var allowedDifferences = regexp.MustCompile(`^(?:` + strings.Join([]string{
	// Releases of one namespace have different labels.
	`\S+\[app\.kubernetes\.io/instance\]: ∅ → a2ad`,
	`\S*metadata\.labels\[(app\.kubernetes\.io/(version|managed-by)|helm\.sh/chart)\]: ∅ → \S+`,
	`\S*metadata\.creationTimestamp: .*`,
	// An overlay names the image for kustomize.
	`\S+\.containers\[0\]\.image: a2ad → ghcr\.io/a2ad/a2ad:\S+`,
	`\S+\.containers\[0\]\.imagePullPolicy: ∅ → IfNotPresent`,
	// A changed setting replaces the pods: kustomize changes the name of the ConfigMap.
	`metadata\.name: a2ad-settings-\w+ → a2ad-settings`,
	`\S+\.envFrom\[0\]\.configMapRef\.name: a2ad-settings-\w+ → a2ad-settings`,
	`spec\.template\.metadata\.annotations\[checksum/config\]: ∅ → [0-9a-f]{64}`,
	// Helm runs the migration before all else; with kustomize, a label selects it.
	`metadata\.annotations\[helm\.sh/hook\]: ∅ → pre-install,pre-upgrade`,
	`metadata\.annotations\[helm\.sh/hook-(weight|delete-policy)\]: ∅ → \S+`,
}, "|") + `)$`)

// flatten writes the leaves of an object into a map from their paths.
func flatten(path string, value any, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		for key, child := range v {
			switch {
			case path == "":
				flatten(key, child, into)
			case strings.ContainsAny(key, "./"):
				flatten(path+"["+key+"]", child, into)
			default:
				flatten(path+"."+key, child, into)
			}
		}
	case []any:
		for i, child := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), child, into)
		}
	default:
		into[path] = fmt.Sprint(v)
	}
}

// differences lists the fields that differ, with both values.
func differences(t *testing.T, left, right runtime.Object) (list []string) {
	t.Helper()
	var sides [2]map[string]string
	for i, o := range []runtime.Object{left, right} {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		sides[i] = map[string]string{}
		flatten("", content, sides[i])
	}
	all := maps.Clone(sides[0])
	maps.Copy(all, sides[1])
	for _, path := range slices.Sorted(maps.Keys(all)) {
		var values [2]string
		for i, side := range sides {
			value, ok := side[path]
			if values[i] = value; !ok {
				values[i] = "∅"
			}
		}
		if values[0] != values[1] {
			list = append(list, path+": "+values[0]+" → "+values[1])
		}
	}
	return list
}

// unexpected compares all objects of the base with those of the chart, and returns what is not allowed.
func unexpected(t *testing.T, kustomized, helmed map[string]runtime.Object) (list []string) {
	t.Helper()
	names := slices.Sorted(maps.Keys(kustomized))
	if got := slices.Sorted(maps.Keys(helmed)); !slices.Equal(got, names) {
		list = append(list, fmt.Sprintf("the chart has %q, and kustomize %q", got, names))
	}
	for _, name := range names {
		if helmed[name] == nil {
			continue
		}
		for _, d := range differences(t, kustomized[name], helmed[name]) {
			if !allowedDifferences.MatchString(d) {
				list = append(list, name+": "+d)
			}
		}
	}
	return list
}

func TestChartAndKustomizeDescribeTheSame(t *testing.T) {
	t.Parallel()
	kustomized, err := objects(t, filesys.MakeFsOnDisk(), base)
	if err != nil {
		t.Fatal(err)
	}
	helmed, err := rendered(t, loadChart(t), "a2ad", "{}")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range unexpected(t, kustomized, helmed) {
		t.Error(d)
	}
}

// Planted faults must be found: by the strict decoder, or by the comparison with kustomize.
func TestChartFaultsAreFound(t *testing.T) {
	t.Parallel()
	kustomized, err := objects(t, filesys.MakeFsOnDisk(), base)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, old, new, want string }{
		{"deployment.yaml", "terminationGracePeriodSeconds:", "terminationGracePeriod:", "terminationGracePeriod"},
		{"deployment.yaml", "timeoutSeconds 20 }}", "timeoutSeconds 10 }}", "terminationGracePeriodSeconds"},
		{"deployment.yaml", "path: /readyz", "path: /livez", "readinessProbe"},
		{"deployment.yaml", "maxUnavailable: 0", "maxUnavailable: 1", "maxUnavailable"},
		{"_helpers.tpl", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRootFilesystem"},
		{"_helpers.tpl", "runAsNonRoot: true", "", "runAsNonRoot"},
		{"migrate.yaml", "args: [migrate, up]", "args: [migrate]", "args[1]"},
		{"migrate.yaml", "restartPolicy: Never", "restartPolicy: never", "restartPolicy"},
		{"networkpolicy.yaml", "192.168.0.0/16", "192.168.0.0/24", "192.168.0.0/24"},
		{"service.yaml", "clusterIP: None", "clusterIP:", "clusterIP"},
		{"config.yaml", `":9090"`, `":9091"`, "A2AD_ADMIN_LISTEN"},
		{"disruption.yaml", "policy/v1", "policy/v1beta1", "policy/v1beta1"},
		{"disruption.yaml", "if .Values.disruptionBudget.enabled", "if false", "PodDisruptionBudget"},
	} {
		c, found := loadChart(t), false
		for _, file := range c.Templates {
			if file.Name == "templates/"+tt.file {
				text := strings.Replace(string(file.Data), tt.old, tt.new, 1)
				found, file.Data = text != string(file.Data), []byte(text)
			}
		}
		if !found {
			t.Errorf("%s has no %q", tt.file, tt.old)
		}
		helmed, err := rendered(t, c, "a2ad", "{}")
		problems := fmt.Sprint(err)
		if err == nil {
			problems = strings.Join(unexpected(t, kustomized, helmed), "\n")
		}
		if !strings.Contains(problems, tt.want) {
			t.Errorf("with %q the chart is accepted: %s", tt.new, problems)
		}
	}
}

// Two releases in one namespace share no object and no pod.
func TestReleasesAreSeparate(t *testing.T) {
	t.Parallel()
	first, err := rendered(t, loadChart(t), "a2ad", everything)
	if err != nil {
		t.Fatal(err)
	}
	second, err := rendered(t, loadChart(t), "prod", everything)
	if err != nil {
		t.Fatal(err)
	}
	for name := range first {
		if second[name] != nil {
			t.Errorf("both have %s", name)
		}
	}
	pods := labels.Set(must[*appsv1.Deployment](t, second, "Deployment prod-a2ad").Spec.Template.Labels)
	for name, selector := range selectors(t, first) {
		if selector.Matches(pods) {
			t.Errorf("%s selects pods of the other release", name)
		}
	}
}

// selectors returns what objects select pods by.
func selectors(t *testing.T, all map[string]runtime.Object) map[string]labels.Selector {
	t.Helper()
	found := map[string]labels.Selector{}
	add := func(name string, s *metav1.LabelSelector) {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() { // it would select all pods of the namespace
			t.Errorf("%s selects %v: %v", name, selector, err)
		}
		found[name] = selector
	}
	for name, o := range all {
		switch o := o.(type) {
		case *appsv1.Deployment:
			add(name, o.Spec.Selector)
			for _, spread := range o.Spec.Template.Spec.TopologySpreadConstraints {
				add(name+" over "+spread.TopologyKey, spread.LabelSelector)
			}
		case *policyv1.PodDisruptionBudget:
			add(name, o.Spec.Selector)
		case *networkingv1.NetworkPolicy:
			add(name, &o.Spec.PodSelector)
		case *corev1.Service:
			add(name, &metav1.LabelSelector{MatchLabels: o.Spec.Selector})
		}
	}
	return found
}

// checkReferences checks that objects name what exists, whatever the values are.
func checkReferences(t *testing.T, all map[string]runtime.Object) {
	t.Helper()
	var template corev1.PodTemplateSpec
	for name, o := range all {
		switch o := o.(type) {
		case *corev1.Secret:
			t.Errorf("%s is in the chart: its secrets are references", name)
		case *appsv1.Deployment:
			template = o.Spec.Template
			must[*corev1.ServiceAccount](t, all, "ServiceAccount "+template.Spec.ServiceAccountName)
			must[*corev1.ConfigMap](t, all, "ConfigMap "+template.Spec.Containers[0].EnvFrom[0].ConfigMapRef.Name)
		case *batchv1.Job: // it runs before all that is not a hook
			account := must[*corev1.ServiceAccount](t, all, "ServiceAccount "+o.Spec.Template.Spec.ServiceAccountName)
			if account.Annotations["helm.sh/hook"] != o.Annotations["helm.sh/hook"] {
				t.Errorf("%s runs at %s, and its account exists at %s", name, o.Annotations, account.Annotations)
			}
			if len(o.Spec.Template.Spec.Containers[0].EnvFrom) > 0 {
				t.Errorf("%s takes settings from an object that does not exist yet", name)
			}
		case *networkingv1.Ingress:
			for _, r := range o.Spec.Rules {
				for _, p := range r.HTTP.Paths {
					service := must[*corev1.Service](t, all, "Service "+p.Backend.Service.Name)
					if !slices.ContainsFunc(service.Spec.Ports, func(s corev1.ServicePort) bool {
						return s.Name == p.Backend.Service.Port.Name && s.Name == "http"
					}) {
						t.Errorf("%s leads to %v", name, p.Backend.Service)
					}
				}
			}
		case *gatewayv1.HTTPRoute:
			checkRoute(t, all, o)
		case *autoscalingv2.HorizontalPodAutoscaler:
			must[*appsv1.Deployment](t, all, o.Spec.ScaleTargetRef.Kind+" "+o.Spec.ScaleTargetRef.Name)
		}
	}
	for name, selector := range selectors(t, all) {
		if !selector.Matches(labels.Set(template.Labels)) {
			t.Errorf("%s does not select the replicas: %s", name, selector)
		}
	}
}

// checkRoute checks that the route leads gRPC to the port for gRPC, and all else to the port for HTTP.
func checkRoute(t *testing.T, all map[string]runtime.Object, route *gatewayv1.HTTPRoute) {
	t.Helper()
	for _, r := range route.Spec.Rules {
		want := "http"
		if *r.Matches[0].Path.Value != "/" {
			want = "grpc"
		}
		service := must[*corev1.Service](t, all, "Service "+string(r.BackendRefs[0].Name))
		if !slices.ContainsFunc(service.Spec.Ports, func(s corev1.ServicePort) bool {
			return s.Name == want && s.Port == *r.BackendRefs[0].Port
		}) {
			t.Errorf("%s leads to port %d, which is not that of %s", *r.Matches[0].Path.Value, *r.BackendRefs[0].Port,
				want)
		}
	}
}
