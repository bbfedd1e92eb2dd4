package load

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/inferencecache/inferencecache/crds/admission"
	"github.com/inferencecache/inferencecache/crds/v1alpha1"
)

// loader collects the objects and problems of several files.
type loader struct {
	objects  Objects
	problems Problems
	seen     map[string]*Problem // where each object is, by kind and name

	// What is accepted, by namespace, for rules between objects.
	policies map[string][]v1alpha1.CachePolicy
	tenants  map[string][]v1alpha1.CacheTenant
	backends map[string][]v1alpha1.CacheBackend
}

func (l *loader) report(p *Problem) { l.problems = append(l.problems, p) }

func (l *loader) finish() (Objects, error) {
	if len(l.problems) > 0 {
		return l.objects, l.problems
	}
	return l.objects, nil
}

func (l *loader) file(name string, data []byte) {
	for _, d := range split(data) {
		place := Problem{File: name, Document: d.number, Line: d.line}
		root, err := parse(d.text)
		if err != nil {
			l.reportAt(place, d.line, err)
			continue
		}
		l.document(place, d.line, root)
	}
}

// reportAt reports an error, at its own line where it has one. start is the line its document starts at.
func (l *loader) reportAt(place Problem, start int, err error) {
	var located *lineError
	if errors.As(err, &located) && located.line > 0 {
		place.Line = start + located.line - 1
	}
	place.Err = err
	l.report(&place)
}

func (l *loader) document(place Problem, start int, root *yaml.Node) {
	place.Line = start + root.Line - 1
	value, err := new(converter).convert(root, 0)
	if err != nil {
		l.reportAt(place, start, err)
		return
	}
	object, isObject := value.(map[string]any)
	if !isObject {
		place.Err = errors.New("is not an object with apiVersion, kind and metadata")
		l.report(&place)
		return
	}
	read, err := kindOf(object, root)
	if err != nil {
		l.reportAt(place, start, err)
		return
	}
	place.Object = describe(object)
	for _, err := range read(l, object, place) {
		at := place
		if err.Field != "" {
			at.Line = start + lineOf(root, err.Field) - 1
		}
		at.Err = err.Err
		l.report(&at)
	}
}

// fieldError is an error at a field of an object.
type fieldError struct {
	Field string // "" is the object as a whole
	Err   error
}

// reader reads an object of one kind into the loader, and returns what is wrong with it.
type reader func(l *loader, object map[string]any, place Problem) []fieldError

var readers = map[string]reader{
	"CacheBackend": func(l *loader, o map[string]any, place Problem) []fieldError {
		return read(l, o, place, true, func(b *v1alpha1.CacheBackend) field.ErrorList {
			admission.DefaultCacheBackend(b)
			b.Status = v1alpha1.CacheBackendStatus{}
			errs := admission.ValidateCacheBackend(b, l.backends[b.Namespace])
			keep(errs, b, &l.objects.CacheBackends, &l.backends, b.Namespace)
			return errs
		})
	},
	"CachePolicy": func(l *loader, o map[string]any, place Problem) []fieldError {
		return read(l, o, place, true, func(p *v1alpha1.CachePolicy) field.ErrorList {
			admission.DefaultCachePolicy(p)
			p.Status = v1alpha1.CachePolicyStatus{}
			errs := admission.ValidateCachePolicy(p, l.policies[p.Namespace])
			keep(errs, p, &l.objects.CachePolicies, &l.policies, p.Namespace)
			return errs
		})
	},
	"CacheTenant": func(l *loader, o map[string]any, place Problem) []fieldError {
		return read(l, o, place, true, func(t *v1alpha1.CacheTenant) field.ErrorList {
			admission.DefaultCacheTenant(t)
			t.Status = v1alpha1.CacheTenantStatus{}
			errs := admission.ValidateCacheTenant(t, l.tenants[t.Namespace])
			keep(errs, t, &l.objects.CacheTenants, &l.tenants, t.Namespace)
			return errs
		})
	},
	"CacheIndex": func(l *loader, o map[string]any, place Problem) []fieldError {
		return read(l, o, place, false, func(x *v1alpha1.CacheIndex) field.ErrorList {
			x.Status = v1alpha1.CacheIndexStatus{}
			errs := admission.ValidateCacheIndex(x)
			keep(errs, x, &l.objects.CacheIndices, nil, "")
			return errs
		})
	},
	"PromptTemplate": func(l *loader, o map[string]any, place Problem) []fieldError {
		return read(l, o, place, true, func(t *v1alpha1.PromptTemplate) field.ErrorList {
			t.Status = v1alpha1.PromptTemplateStatus{}
			errs := admission.ValidatePromptTemplate(t)
			keep(errs, t, &l.objects.PromptTemplates, nil, "")
			return errs
		})
	},
	"PDTopology": func(l *loader, o map[string]any, place Problem) []fieldError {
		return read(l, o, place, true, func(t *v1alpha1.PDTopology) field.ErrorList {
			t.Status = v1alpha1.PDTopologyStatus{}
			errs := admission.ValidatePDTopology(t)
			keep(errs, t, &l.objects.PDTopologies, nil, "")
			return errs
		})
	},
}

// keep takes a sound object; siblings, where not nil, are those that later objects are compared with.
func keep[T any](errs field.ErrorList, object *T, all *[]*T, siblings *map[string][]T, namespace string) {
	if len(errs) > 0 {
		return
	}
	*all = append(*all, object)
	if siblings == nil {
		return
	}
	if *siblings == nil {
		*siblings = map[string][]T{}
	}
	(*siblings)[namespace] = append((*siblings)[namespace], *object)
}

// kindOf returns the reader of an object's kind.
func kindOf(object map[string]any, root *yaml.Node) (reader, error) {
	version, kind := object["apiVersion"], object["kind"]
	if version != v1alpha1.GroupVersion.String() {
		return nil, &lineError{line: lineOf(root, "apiVersion"), err: fmt.Errorf("apiVersion is %s, want %s", word(version), v1alpha1.GroupVersion)}
	}
	name, _ := kind.(string)
	if r := readers[name]; r != nil {
		return r, nil
	}
	return nil, &lineError{line: lineOf(root, "kind"), err: fmt.Errorf("kind is %s, want one of %s",
		word(kind), strings.Join(slices.Sorted(maps.Keys(readers)), ", "))}
}

func word(value any) string {
	switch value.(type) {
	case nil:
		return "missing"
	case string:
		return fmt.Sprintf("%q", value)
	}
	return "not text"
}

// describe names an object as far as it says its name.
func describe(object map[string]any) string {
	text, _ := object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if name == "" {
		return text
	}
	if namespace, _ := metadata["namespace"].(string); namespace != "" {
		name = namespace + "/" + name
	}
	return text + " " + name
}

// read decodes an object, checks its name, and has it admitted.
func read[T any, P interface {
	*T
	metav1.Object
}](l *loader, object map[string]any, place Problem, namespaced bool, admit func(P) field.ErrorList) []fieldError {
	typed := P(new(T))
	if errs := decode(object, typed, func() any { return new(T) }); len(errs) > 0 {
		return errs
	}
	if errs := nameErrors(typed, namespaced); len(errs) > 0 {
		return fieldErrors(errs)
	}
	if first := l.seen[place.Object]; first != nil {
		return []fieldError{{Field: "metadata.name", Err: fmt.Errorf("is there already, in %s line %d", first.File, first.Line)}}
	}
	if l.seen == nil {
		l.seen = map[string]*Problem{}
	}
	l.seen[place.Object] = &place
	return fieldErrors(admit(typed))
}

func fieldErrors(errs field.ErrorList) []fieldError {
	var all []fieldError
	for _, err := range errs {
		all = append(all, fieldError{Field: err.Field, Err: err})
	}
	return all
}

func nameErrors(object metav1.Object, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	metadata := field.NewPath("metadata")
	name, namespace := object.GetName(), object.GetNamespace()
	if name == "" {
		errs = append(errs, field.Required(metadata.Child("name"), ""))
	} else {
		for _, problem := range validation.IsDNS1123Subdomain(name) {
			errs = append(errs, field.Invalid(metadata.Child("name"), name, problem))
		}
	}
	switch {
	case !namespaced && namespace != "":
		errs = append(errs, field.Forbidden(metadata.Child("namespace"), "the kind is not namespaced"))
	case namespaced && namespace == "":
		errs = append(errs, field.Required(metadata.Child("namespace"), "without a cluster nothing else says which tenant the object is for"))
	case namespaced:
		for _, problem := range validation.IsDNS1123Label(namespace) {
			errs = append(errs, field.Invalid(metadata.Child("namespace"), namespace, problem))
		}
	}
	return errs
}
