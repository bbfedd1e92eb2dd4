package daemonset

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	core "k8s.io/api/core/v1"
)

// folder is where binaries are built, made and removed by TestMain.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "daemonset"); err != nil {
		panic(err)
	}
	m.Run()
	if err := os.RemoveAll(folder); err != nil {
		panic(err)
	}
}

// build builds the commands that the workloads run, once.
var build = sync.OnceValues(func() ([]byte, error) {
	cmd := exec.Command("go", "build", "-ldflags", "-s -w", "-o", folder, "./cmd/agent", "./cmd/aggregator", "./cmd/controller")
	cmd.Dir = ".."
	return cmd.CombinedOutput()
})

// help runs the component's command with arguments and --help, which reads and checks the arguments and
// does nothing, and returns what it prints.
func help(t *testing.T, component string, arguments ...string) string {
	t.Helper()
	if out, err := build(); err != nil {
		t.Fatalf("build the commands: %v\n%s", err, out)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(folder, component), append(arguments, "--help")...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return string(out)
}

// arguments are those of a container, with $(NAME) in place of variables.
func arguments(c *core.Container) []string {
	var pairs []string
	for _, e := range c.Env {
		pairs = append(pairs, "$("+e.Name+")", e.Value)
	}
	expand := strings.NewReplacer(pairs...)
	var args []string
	for _, a := range c.Args {
		args = append(args, expand.Replace(a))
	}
	return args
}

func TestCommandsKnowTheArgumentsAndVariablesTheyAreGiven(t *testing.T) {
	for _, w := range readBase(t).workloads {
		text := help(t, w.component(), arguments(w.container())...)
		for _, e := range w.container().Env {
			if strings.HasPrefix(e.Name, "INFERENCECACHE_") && !strings.Contains(text, "["+e.Name+"]") {
				t.Errorf("%s sets %s, which is no flag's variable", w.name, e.Name)
			}
		}
	}
}

func TestComponentsKnowTheArgumentsTheyAdd(t *testing.T) {
	added := regexp.MustCompile(`(?m)^ *value: "?(--[a-z0-9-]+=?[^"\n]*)"?$`)
	for _, component := range []string{"agent", "aggregator", "controller"} {
		for _, folder := range []string{"tls", "mtls"} {
			for _, document := range optional(t, "components/"+folder+"/"+component+".yaml") {
				var args []string
				for _, m := range added.FindAllStringSubmatch(string(document), -1) {
					args = append(args, m[1])
				}
				if len(args) == 0 {
					t.Errorf("components/%s/%s.yaml adds no argument", folder, component)
				}
				help(t, component, args...)
			}
		}
	}
}

func TestPortsAreThoseThatCommandsListenOn(t *testing.T) {
	defaults := regexp.MustCompile(`--[a-z]+(?:-[a-z]+)*-bind-address [^\n]*\(default ":(\d+)"\)`)
	for _, w := range readBase(t).workloads {
		var listens, declared []int
		for _, m := range defaults.FindAllStringSubmatch(help(t, w.component()), -1) {
			port, err := strconv.Atoi(m[1])
			if err != nil {
				t.Fatal(err)
			}
			listens = append(listens, port)
		}
		for _, p := range w.container().Ports {
			declared = append(declared, int(p.ContainerPort))
		}
		slices.Sort(listens)
		slices.Sort(declared)
		if !slices.Equal(listens, declared) {
			t.Errorf("%s declares ports %v, its command listens on %v", w.name, declared, listens)
		}
	}
}

func TestImagesAreOfCommandsThatExist(t *testing.T) {
	for _, w := range readBase(t).workloads {
		if got, want := w.container().Image, "inferencecache/"+w.component()+":dev"; got != want {
			t.Errorf("%s runs image %s, want %s", w.name, got, want)
		}
		if _, err := exec.Command("go", "list", "../cmd/"+w.component()).Output(); err != nil {
			t.Errorf("%s: no command of that name: %v", w.name, err)
		}
	}
}

func TestAgentsAndControllersCallServicesThatExist(t *testing.T) {
	i := readBase(t)
	host, port, err := net.SplitHostPort(flag(t, i, "agent", "aggregator"))
	if err != nil {
		t.Fatal(err)
	}
	serves(t, i.service(t, host), port)
	if s := i.service(t, host); s.Spec.ClusterIP != core.ClusterIPNone || !s.Spec.PublishNotReadyAddresses {
		t.Errorf("agents resolve %s, which must have an address for each aggregator, ready or not", host)
	}
	u, err := url.Parse(flag(t, i, "controller", "server-snapshot-url"))
	if err != nil {
		t.Fatal(err)
	}
	serves(t, i.service(t, u.Hostname()), u.Port())
}

func TestAggregatorsLetTheControllersAccountAndTokenIn(t *testing.T) {
	i := readBase(t)
	controller := i.workload(t, "controller")
	want := fmt.Sprintf("system:serviceaccount:inference-cache-system:%s", controller.template.Spec.ServiceAccountName)
	if got := flag(t, i, "aggregator", "allowed-controller-sa"); got != want {
		t.Errorf("aggregators admit %s, controllers are %s", got, want)
	}
	text := help(t, "aggregator") + help(t, "controller")
	for _, v := range controller.template.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		token := v.Projected.Sources[0].ServiceAccountToken
		if !strings.Contains(text, `(default "`+token.Audience+`")`) {
			t.Errorf("volume %s has audience %s, which is not one that aggregators ask for", v.Name, token.Audience)
		}
		path := mountPath(controller.container(), v.Name) + "/" + token.Path
		if !strings.Contains(text, `(default "`+path+`")`) {
			t.Errorf("volume %s puts a token at %s, which is not where the controller looks", v.Name, path)
		}
	}
}

func TestWebhooksLeadToTheControllers(t *testing.T) {
	i := readBase(t)
	text := help(t, "controller")
	for _, name := range []string{i.mutating[0].Name, i.validating[0].Name, "webhook-server-cert", "inference-cache-webhook-service"} {
		if !strings.Contains(text, `(default "`+name+`")`) {
			t.Errorf("%s is no name that the controller looks for", name)
		}
	}
	type hook struct{ name, path string }
	var got, want []hook
	for _, w := range i.mutating[0].Webhooks {
		got = append(got, hook{w.Name, *w.ClientConfig.Service.Path})
		serves(t, i.service(t, w.ClientConfig.Service.Name), strconv.Itoa(int(*w.ClientConfig.Service.Port)))
	}
	for _, w := range i.validating[0].Webhooks {
		got = append(got, hook{w.Name, *w.ClientConfig.Service.Path})
		serves(t, i.service(t, w.ClientConfig.Service.Name), strconv.Itoa(int(*w.ClientConfig.Service.Port)))
	}
	for _, verb := range []string{"mutate", "validate"} {
		for _, kind := range []string{"cachebackend", "cachepolicy", "cachetenant"} {
			want = append(want, hook{verb[:1] + kind + ".inferencecache.io", "/" + verb + "-inferencecache-io-v1alpha1-" + kind})
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("webhooks are %v, want %v", got, want)
	}
}

// flag returns the value that a component is given.
func flag(t *testing.T, i *install, component, name string) string {
	t.Helper()
	for _, a := range i.workload(t, component).container().Args {
		if value, ok := strings.CutPrefix(a, "--"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("%s is not given --%s", component, name)
	return ""
}

func serves(t *testing.T, s *core.Service, port string) {
	t.Helper()
	for _, p := range s.Spec.Ports {
		if strconv.Itoa(int(p.Port)) == port {
			return
		}
	}
	t.Errorf("Service %s has no port %s", s.Name, port)
}

func mountPath(c *core.Container, volume string) string {
	for _, m := range c.VolumeMounts {
		if m.Name == volume {
			return m.MountPath
		}
	}
	return ""
}
