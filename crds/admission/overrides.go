package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// reserved is what overrides may not touch, since the wiring of one engine and cache depends on it.
type reserved struct {
	adapter string
	args    []string
	env     []string
}

var reservations = map[v1alpha1.EngineRuntime]map[v1alpha1.BackendType]reserved{
	v1alpha1.RuntimeVLLM: {
		v1alpha1.BackendLMCache: {
			adapter: "vllm/LMCache",
			args:    []string{"--kv-transfer-config", "--disable-hybrid-kv-cache-manager", "--model", "--port"},
			env:     []string{"PYTHONHASHSEED", "INFERENCECACHE_FAIL_OPEN"},
		},
	},
	v1alpha1.RuntimeSGLang: {
		v1alpha1.BackendLMCache: {
			adapter: "sglang/LMCache",
			args:    []string{"--enable-lmcache", "--lmcache-config-file", "--enable-metrics", "--model", "--model-path", "--port"},
			env:     []string{"LMCACHE_USE_EXPERIMENTAL", "INFERENCECACHE_FAIL_OPEN"},
		},
		v1alpha1.BackendSGLangHiCache: {
			adapter: "sglang/SGLangHiCache",
			args: []string{
				"--enable-hierarchical-cache", "--hicache-size", "--hicache-ratio", "--hicache-write-policy",
				"--hicache-io-backend", "--hicache-mem-layout", "--enable-metrics", "--model", "--model-path", "--port",
			},
		},
	},
}

// Bounds of engineOverrides.
const (
	maxOverrides      = 64
	maxOverrideLength = 4096
)

func overrideRules(b *v1alpha1.CacheBackend, path *field.Path) field.ErrorList {
	o := b.Spec.Integration.EngineOverrides
	if o == nil {
		return nil
	}
	r := reservations[b.Spec.Runtime][b.Spec.Type]
	var c check
	c.add(textOverrides(path.Child("args"), o.Args, r.arg))
	c.add(textOverrides(path.Child("suppressArgs"), o.SuppressArgs, r.arg))
	c.add(textOverrides(path.Child("suppressEnv"), o.SuppressEnv, r.variable))
	env := path.Child("env")
	c.add(tooMany(env, len(o.Env)))
	for i := range o.Env {
		c.add(variableRules(&o.Env[i], env.Index(i)))
		problem := r.variable(o.Env[i].Name)
		c.forbidden(problem != "", env.Index(i).Child("name"), problem)
	}
	return c.errs
}

func textOverrides(path *field.Path, values []string, reserved func(string) string) field.ErrorList {
	var c check
	c.add(tooMany(path, len(values)))
	for i, value := range values {
		problem := reserved(value)
		c.forbidden(problem != "", path.Index(i), problem)
		c.add(shortEnough(path.Index(i), value, maxOverrideLength))
	}
	return c.errs
}

func tooMany(path *field.Path, n int) field.ErrorList {
	if n <= maxOverrides {
		return nil
	}
	return field.ErrorList{field.TooMany(path, n, maxOverrides)}
}

// arg says why an argument is reserved, "" if it is not. It reads the flag as the engines' parsers do: "_"
// is "-", "--no-" switches off, ".key" sets one key of a JSON value, and an unambiguous start of a flag is
// the flag.
func (r reserved) arg(arg string) string {
	flag := arg
	if end := strings.IndexAny(flag, "=. \t\n"); end >= 0 {
		flag = flag[:end]
	}
	flag = strings.ReplaceAll(flag, "_", "-")
	if off, found := strings.CutPrefix(flag, "--no-"); found {
		flag = "--" + off
	}
	if len(flag) <= len("--") {
		return ""
	}
	for _, name := range r.args {
		if flag == name {
			return fmt.Sprintf("%s is reserved by %s: the wiring depends on it", name, r.adapter)
		}
	}
	for _, name := range r.args {
		if strings.HasPrefix(name, flag) {
			return fmt.Sprintf("%s can be taken as short for %s, which is reserved by %s: write the flag out", flag, name, r.adapter)
		}
	}
	return ""
}

// variable says why an environment variable is reserved, "" if it is not.
func (r reserved) variable(name string) string {
	if !slices.Contains(r.env, name) {
		return ""
	}
	return fmt.Sprintf("%s is reserved by %s: the wiring depends on it", name, r.adapter)
}

func variableRules(v *corev1.EnvVar, path *field.Path) field.ErrorList {
	var c check
	name := path.Child("name")
	c.required(v.Name == "", name, "a variable needs a name")
	if v.Name != "" {
		for _, problem := range validation.IsEnvVarName(v.Name) {
			c.invalid(true, name, v.Name, problem)
		}
	}
	if v.ValueFrom == nil {
		return c.errs
	}
	from := path.Child("valueFrom")
	c.invalid(v.Value != "", from, "", "a variable has value or valueFrom, not both")
	n := 0
	for _, set := range []bool{
		v.ValueFrom.FieldRef != nil, v.ValueFrom.ResourceFieldRef != nil, v.ValueFrom.ConfigMapKeyRef != nil,
		v.ValueFrom.SecretKeyRef != nil, v.ValueFrom.FileKeyRef != nil,
	} {
		if set {
			n++
		}
	}
	c.invalid(n != 1, from, n, "valueFrom needs exactly one source")
	return c.errs
}
