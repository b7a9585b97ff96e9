package doctest_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// manifest is the part of a Kubernetes object that the tests check.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	} `yaml:"metadata"`
	Spec struct {
		Replicas     int    `yaml:"replicas"`
		MinAvailable int    `yaml:"minAvailable"`
		Selector     any    `yaml:"selector"`
		Ports        []port `yaml:"ports"`
		Endpoints    []port `yaml:"endpoints"`
		Template     struct {
			Metadata struct {
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"metadata"`
			Spec podSpec `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type podSpec struct {
	Grace           int         `yaml:"terminationGracePeriodSeconds"`
	Restart         string      `yaml:"restartPolicy"`
	Token           *bool       `yaml:"automountServiceAccountToken"`
	Spread          []any       `yaml:"topologySpreadConstraints"`
	Containers      []container `yaml:"containers"`
	Volumes         []volume    `yaml:"volumes"`
	ServiceAccount  string      `yaml:"serviceAccountName"`
	SecurityContext security    `yaml:"securityContext"`
}

type security struct {
	NonRoot    bool                    `yaml:"runAsNonRoot"`
	User       int                     `yaml:"runAsUser"`
	ReadOnly   bool                    `yaml:"readOnlyRootFilesystem"`
	Escalation *bool                   `yaml:"allowPrivilegeEscalation"`
	Caps       struct{ Drop []string } `yaml:"capabilities"`
	Seccomp    struct{ Type string }   `yaml:"seccompProfile"`
}

type container struct {
	Name string   `yaml:"name"`
	Args []string `yaml:"args"`
	Env  []struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	} `yaml:"env"`
	EnvFrom []struct {
		ConfigMapRef struct {
			Name string `yaml:"name"`
		} `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Ports     []port   `yaml:"ports"`
	Startup   probe    `yaml:"startupProbe"`
	Liveness  probe    `yaml:"livenessProbe"`
	Readiness probe    `yaml:"readinessProbe"`
	Security  security `yaml:"securityContext"`
	Resources struct {
		Requests, Limits map[string]string
	} `yaml:"resources"`
	Mounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type port struct {
	Name          string `yaml:"name"`
	ContainerPort int    `yaml:"containerPort"`
	TargetPort    string `yaml:"targetPort"`
	Port          any    `yaml:"port"`
	Path          string `yaml:"path"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

type volume struct {
	Name      string `yaml:"name"`
	ConfigMap struct {
		Name string `yaml:"name"`
	} `yaml:"configMap"`
	Secret struct {
		SecretName string `yaml:"secretName"`
	} `yaml:"secret"`
	EmptyDir map[string]any `yaml:"emptyDir"`
}

type kustomization struct {
	Resources []string `yaml:"resources"`
	Maps      []struct {
		Name     string   `yaml:"name"`
		Literals []string `yaml:"literals"`
		Files    []string `yaml:"files"`
	} `yaml:"configMapGenerator"`
}

const kubernetes = "deploy/kubernetes"

// kustomized reads a kustomization with everything below it.
func kustomized(t *testing.T, dir string) (objects []manifest, maps map[string]map[string]string) {
	t.Helper()
	var k kustomization
	if err := yaml.Unmarshal([]byte(readRepo(t, dir, "kustomization.yaml")), &k); err != nil {
		t.Fatalf("%s: %v", dir, err)
	}
	maps = map[string]map[string]string{}
	for _, r := range k.Resources {
		path := filepath.Join(dir, r)
		if !strings.HasSuffix(r, ".yaml") {
			more, below := kustomized(t, path)
			objects = append(objects, more...)
			for name, values := range below {
				maps[name] = values
			}
			continue
		}
		for _, doc := range strings.Split(readRepo(t, path), "\n---\n") {
			var m manifest
			if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			objects = append(objects, m)
		}
	}
	for _, m := range k.Maps {
		if maps[m.Name] == nil {
			maps[m.Name] = map[string]string{}
		}
		for _, l := range m.Literals {
			name, value, _ := strings.Cut(l, "=")
			maps[m.Name][name] = value
		}
		for _, f := range m.Files {
			maps[m.Name][filepath.Base(f)] = readRepo(t, dir, f)
		}
	}
	return objects, maps
}

func find(t *testing.T, objects []manifest, kind, name string) manifest {
	t.Helper()
	for _, m := range objects {
		if m.Kind == kind && m.Metadata.Name == name {
			return m
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return manifest{}
}

// The manifests start a complete a2ad, as the documentation says.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	objects, maps := kustomized(t, kubernetes+"/overlays/example")
	server, job := find(t, objects, "Deployment", "a2ad"), find(t, objects, "Job", "a2ad-migrate")
	env := checkPod(t, server, maps)
	checkPod(t, job, maps)
	if env["A2AD_DATABASE_URL_FILE"] == "/etc/a2ad/migrate/database-url" {
		t.Error("the replicas log in as the owner of the tables")
	}
	pod := server.Spec.Template.Spec
	c := pod.Containers[0]
	longerThanDrain(t, "the Deployment", fmt.Sprintf("%ds", pod.Grace), env)
	if server.Spec.Replicas < 2 || len(pod.Spread) == 0 ||
		find(t, objects, "PodDisruptionBudget", "a2ad").Spec.MinAvailable < 1 {
		t.Error("the loss of one machine takes all replicas with it")
	}
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = fmt.Sprint(p.ContainerPort)
	}
	for name, setting := range map[string]string{"http": "A2AD_LISTEN", "grpc": "A2AD_GRPC_LISTEN",
		"admin": "A2AD_ADMIN_LISTEN"} {
		if ":"+ports[name] != env[setting] {
			t.Errorf("port %s is %s, and %s is %s", name, ports[name], setting, env[setting])
		}
	}
	handlers := readRepo(t, "internal", "rpc", "admin.go")
	for what, p := range map[string]probe{"startup": c.Startup, "liveness": c.Liveness, "readiness": c.Readiness} {
		want := "/livez"
		if what == "readiness" {
			want = "/readyz"
		}
		if p.HTTPGet.Path != want || p.HTTPGet.Port != "admin" || !strings.Contains(handlers, `"`+want+`"`) &&
			!strings.Contains(handlers, " "+want+`"`) {
			t.Errorf("the %s probe asks %s of %s", what, p.HTTPGet.Path, p.HTTPGet.Port)
		}
	}
	if got := server.Spec.Template.Metadata.Annotations["prometheus.io/port"]; got != ports["admin"] {
		t.Errorf("Prometheus asks port %s", got)
	}
	for _, m := range objects {
		if m.Kind == "Service" {
			for _, p := range m.Spec.Ports {
				if ports[p.TargetPort] == "" || (p.TargetPort == "admin") != (m.Metadata.Name == "a2ad-admin") {
					t.Errorf("the Service %s leads to %s", m.Metadata.Name, p.TargetPort)
				}
			}
		}
	}
	admin := find(t, objects, "Service", "a2ad-admin")
	if p := find(t, objects, "ServiceMonitor", "a2ad").Spec.Endpoints[0]; p.Port != admin.Spec.Ports[0].Name ||
		p.Path != "/metrics" {
		t.Errorf("the ServiceMonitor asks %v", p)
	}
	network := readRepo(t, kubernetes, "base", "network.yaml")
	for name, number := range ports {
		if !strings.Contains(network, "port: "+number+" }") {
			t.Errorf("the NetworkPolicy allows no traffic to %s", name)
		}
	}
}

// checkPod checks a pod against the binary, and returns the settings that the pod gets.
func checkPod(t *testing.T, m manifest, maps map[string]map[string]string) map[string]string {
	t.Helper()
	where := m.Kind + " " + m.Metadata.Name
	pod := m.Spec.Template.Spec
	if s := pod.SecurityContext; !s.NonRoot || s.User != 65532 || s.Seccomp.Type != "RuntimeDefault" ||
		pod.Token == nil || *pod.Token {
		t.Errorf("%s: securityContext %+v", where, s)
	}
	if len(pod.Containers) != 1 {
		t.Fatalf("%s has %d containers", where, len(pod.Containers))
	}
	c := pod.Containers[0]
	if s := c.Security; !s.ReadOnly || s.Escalation == nil || *s.Escalation ||
		!slices.Equal(s.Caps.Drop, []string{"ALL"}) {
		t.Errorf("%s: securityContext of the container %+v", where, s)
	}
	if c.Resources.Requests["cpu"] == "" || c.Resources.Requests["memory"] == "" || c.Resources.Limits["memory"] == "" {
		t.Errorf("%s: resources %v", where, c.Resources)
	}
	checkCommand(t, c.Args)
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		values, ok := maps[from.ConfigMapRef.Name]
		if !ok {
			t.Errorf("%s: no ConfigMap %s", where, from.ConfigMapRef.Name)
		}
		for name, value := range values {
			env[name] = value
		}
	}
	for _, e := range c.Env {
		env[e.Name] = e.Value
	}
	checkSettings(t, where, env, c.Args[0] == "serve")
	deploy := readRepo(t, "docs", "how-to", "deploy.md")
	kept := map[string]volume{}
	for _, v := range pod.Volumes {
		kept[v.Name] = v
		if secret := v.Secret.SecretName; secret != "" &&
			!strings.Contains(deploy, "create secret generic "+secret+" ") {
			t.Errorf("%s: docs/how-to/deploy.md does not say how to make the Secret %s", where, secret)
		}
		if name := v.ConfigMap.Name; name != "" && maps[name] == nil {
			t.Errorf("%s: no ConfigMap %s", where, name)
		}
	}
	for name, path := range env {
		if name != "A2AD_AGENTS" && !strings.HasSuffix(name, "_FILE") {
			continue
		}
		found := false
		for _, mount := range c.Mounts {
			v, ok := kept[mount.Name]
			if !ok {
				t.Errorf("%s mounts %s, which is not there", where, mount.Name)
			}
			rest, below := strings.CutPrefix(path, mount.MountPath)
			found = found || below && (rest == "" || v.Secret.SecretName != "" &&
				regexp.MustCompile(`create secret generic `+v.Secret.SecretName+` [^\n]*(\\\n[^\n]*)*--from-[a-z]+=`+
					rest[1:]+`=`).MatchString(deploy))
		}
		if !found {
			t.Errorf("%s: %s is %s, and nothing puts it there", where, name, path)
		}
	}
	return env
}
