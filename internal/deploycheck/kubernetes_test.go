package deploycheck

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	kustomize "sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	base    = repository + "/deploy/kubernetes/base"
	example = repository + "/deploy/kubernetes/overlays/example"
)

// decoder refuses unknown kinds and fields, and duplicate fields.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme,
		monitoringv1.AddToScheme, autoscalingv2.AddToScheme, gatewayv1.Install,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// objects returns the output of kubectl kustomize for a directory, by kind and name.
func objects(t *testing.T, fs filesys.FileSystem, dir string) (map[string]runtime.Object, error) {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(fs, dir)
	if err != nil {
		return nil, err
	}
	strict, found := decoder(t), map[string]runtime.Object{}
	for _, r := range all.Resources() {
		object, err := decode(strict, r)
		if err != nil {
			return nil, err
		}
		name := r.GetName()
		if r.GetKind() == "ConfigMap" { // its name ends in a hash
			name = name[:strings.LastIndexByte(name, '-')]
		}
		found[r.GetKind()+" "+name] = object
	}
	return found, nil
}

func decode(strict runtime.Decoder, r *resource.Resource) (runtime.Object, error) {
	text, err := r.AsYAML()
	if err != nil {
		return nil, err
	}
	object, _, err := strict.Decode(text, nil, nil)
	return object, err
}

func must[T any](t *testing.T, all map[string]runtime.Object, name string) T {
	t.Helper()
	object, ok := all[name].(T)
	if !ok {
		t.Fatalf("no %s, or it is a %T: %q", name, all[name], slices.Sorted(maps.Keys(all)))
	}
	return object
}

// The base and the example are rendered; kinds, fields and references of the output must be valid.
func TestKustomizeAcceptsTheManifests(t *testing.T) {
	t.Parallel()
	onDisk := filesys.MakeFsOnDisk()
	if _, err := objects(t, onDisk, base); err != nil {
		t.Errorf("the base: %v", err)
	}
	all, err := objects(t, onDisk, example)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range all {
		if o.(metav1.Object).GetNamespace() != "a2ad" {
			t.Errorf("%s is in namespace %q", name, o.(metav1.Object).GetNamespace())
		}
		if old, ok := o.(interface{ APILifecycleDeprecated() (int, int) }); ok {
			t.Errorf("%s has a deprecated version: %T", name, old)
		}
	}
	server := must[*appsv1.Deployment](t, all, "Deployment a2ad").Spec
	job := must[*batchv1.Job](t, all, "Job a2ad-migrate").Spec
	for name, template := range map[string]corev1.PodTemplateSpec{"server": server.Template,
		"migration": job.Template} {
		if image := template.Spec.Containers[0].Image; !strings.HasPrefix(image, "registry.example.com/a2ad:") {
			t.Errorf("the image of the %s is %s", name, image)
		}
		for _, v := range template.Spec.Volumes {
			if v.Secret != nil && *v.Secret.DefaultMode != 0o440 {
				t.Errorf("%s: secrets have mode %o", name, *v.Secret.DefaultMode)
			}
			if v.ConfigMap != nil {
				configMap(t, all, v.ConfigMap.Name)
			}
		}
		for _, from := range template.Spec.Containers[0].EnvFrom {
			configMap(t, all, from.ConfigMapRef.Name)
		}
		must[*corev1.ServiceAccount](t, all, "ServiceAccount "+template.Spec.ServiceAccountName)
	}
	selects := func(what string, s *metav1.LabelSelector, servers, migrations bool) {
		t.Helper()
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() { // it would select all pods of the namespace
			t.Errorf("%s selects %v: %v", what, selector, err)
		}
		if selector.Matches(labels.Set(server.Template.Labels)) != servers ||
			selector.Matches(labels.Set(job.Template.Labels)) != migrations {
			t.Errorf("%s selects %s", what, selector)
		}
	}
	selects("the Deployment", server.Selector, true, false)
	for _, spread := range server.Template.Spec.TopologySpreadConstraints {
		selects("the spread over "+spread.TopologyKey, spread.LabelSelector, true, false)
	}
	selects("the disruption budget", must[*policyv1.PodDisruptionBudget](t, all,
		"PodDisruptionBudget a2ad").Spec.Selector, true, false)
	selects("the NetworkPolicy", &must[*networkingv1.NetworkPolicy](t, all, "NetworkPolicy a2ad").Spec.PodSelector,
		true, true)
	for _, name := range []string{"a2ad", "a2ad-admin"} {
		service := must[*corev1.Service](t, all, "Service "+name)
		selects("the Service "+name, &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, true, false)
		for _, p := range service.Spec.Ports {
			if !slices.ContainsFunc(server.Template.Spec.Containers[0].Ports,
				func(c corev1.ContainerPort) bool { return c.Name == p.TargetPort.StrVal }) {
				t.Errorf("the Service %s leads to port %s, which the pod does not have", name, p.TargetPort.StrVal)
			}
		}
	}
	monitor := must[*monitoringv1.ServiceMonitor](t, all, "ServiceMonitor a2ad")
	if job := all["Service a2ad-admin"].(metav1.Object).GetLabels()[monitor.Spec.JobLabel]; job != "a2ad" {
		t.Errorf("the job of the scrape is %q, which the alerts do not know", job)
	}
	monitored, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil || !monitored.Matches(labels.Set(all["Service a2ad-admin"].(metav1.Object).GetLabels())) ||
		monitored.Matches(labels.Set(all["Service a2ad"].(metav1.Object).GetLabels())) {
		t.Errorf("the ServiceMonitor selects %s: %v", monitored, err)
	}
}

// configMap finds the ConfigMap with this name and the hash of its contents.
func configMap(t *testing.T, all map[string]runtime.Object, name string) {
	t.Helper()
	for _, o := range all {
		if m, ok := o.(*corev1.ConfigMap); ok && m.Name == name {
			return
		}
	}
	t.Errorf("no ConfigMap %s", name)
}

// The documentation applies the objects with the migration's label before all others, so they must not need the
// others.
func TestMigrationNeedsNoOtherObject(t *testing.T) {
	t.Parallel()
	all, err := objects(t, filesys.MakeFsOnDisk(), example)
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]runtime.Object{}
	for name, o := range all {
		if o.(metav1.Object).GetLabels()["app.kubernetes.io/component"] == "migrate" {
			first[name] = o
		}
	}
	pod := must[*batchv1.Job](t, first, "Job a2ad-migrate").Spec.Template.Spec
	must[*corev1.ServiceAccount](t, first, "ServiceAccount "+pod.ServiceAccountName)
	for _, v := range pod.Volumes {
		if v.Secret == nil || v.Secret.SecretName != "a2ad-migrate" {
			t.Errorf("the Job mounts %s, which is not there yet", v.Name)
		}
	}
	if len(pod.Containers[0].EnvFrom) > 0 {
		t.Error("the Job takes settings from an object that does not exist yet")
	}
}

// Kustomizations have no field that kustomize does not know or warns about.
func TestKustomizationsHaveNoDeprecatedFields(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{base, example} {
		data, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var k kustomize.Kustomization
		if err := k.Unmarshal(data); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		if old := k.CheckDeprecatedFields(); old != nil && len(*old) > 0 {
			t.Errorf("%s: %q", dir, *old)
		}
		if wrong := k.EnforceFields(); len(wrong) > 0 {
			t.Errorf("%s: %q", dir, wrong)
		}
	}
}

// Planted faults must be found.
func TestManifestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, old, new, want string }{
		{"deployment.yaml", "terminationGracePeriodSeconds: 45", "terminationGracePeriod: 45",
			"terminationGracePeriod"},
		{"deployment.yaml", "automountServiceAccountToken: false", "automountServiceAccountToken: \"no\"",
			"automountServiceAccountToken"},
		{"disruption.yaml", "policy/v1", "policy/v1beta1", "policy/v1beta1"},
		{"network.yaml", "podSelector:", "pods:", "pods"},
		{"kustomization.yaml", "  - network.yaml", "  - networks.yaml", "networks.yaml"},
		{"kustomization.yaml", "configMapGenerator:", "configMapGenerators:", "configMapGenerators"},
	} {
		fs := filesys.MakeFsInMemory()
		files, err := filepath.Glob(base + "/*.yaml")
		if err != nil || len(files) == 0 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, path := range files {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			text := string(data)
			if filepath.Base(path) == tt.file {
				if text = strings.Replace(text, tt.old, tt.new, 1); text == string(data) {
					t.Errorf("%s has no %q", tt.file, tt.old)
				}
			}
			if err := fs.WriteFile("/base/"+filepath.Base(path), []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := objects(t, fs, "/base"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("with %q they are read: %v", tt.new, err)
		}
	}
}
