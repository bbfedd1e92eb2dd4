package crds_test

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/inferencecache/inferencecache/crds"
)

// kindSchema does with an object what the API server does, by the API server's own code.
type kindSchema struct {
	kind       string
	messages   []string // of all rules
	structural *structural.Structural
	schema     validation.SchemaValidator
	rules      *cel.Validator
}

// loadDefinition reads a manifest as the API server stores it.
func loadDefinition(t *testing.T, file string) *apiextensions.CustomResourceDefinition {
	t.Helper()
	data, err := crds.Manifests.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(data, &v1); err != nil {
		t.Fatalf("decode %s: %v", file, err)
	}
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	var crd apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, &crd, nil); err != nil {
		t.Fatalf("convert %s: %v", file, err)
	}
	crd.Status.StoredVersions = []string{"v1alpha1"}
	return &crd
}

func definitionErrors(t *testing.T, file string) field.ErrorList {
	t.Helper()
	return crdvalidation.ValidateCustomResourceDefinition(t.Context(), loadDefinition(t, file))
}

func loadSchema(t *testing.T, file string) kindSchema {
	t.Helper()
	crd := loadDefinition(t, file)
	schema := crd.Spec.Validation
	if schema == nil {
		schema = crd.Spec.Versions[0].Schema
	}
	s, err := structural.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("read schema of %s: %v", file, err)
	}
	v, _, err := validation.NewSchemaValidator(schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatalf("compile schema of %s: %v", file, err)
	}
	return kindSchema{
		kind:       crd.Spec.Names.Kind,
		messages:   ruleMessages(s),
		structural: s,
		schema:     v,
		rules:      cel.NewValidator(s, true, celconfig.PerCallLimit),
	}
}

// admit drops unknown fields of an object, fills defaults, and returns what the schema refuses.
func (k kindSchema) admit(t *testing.T, object map[string]any) field.ErrorList {
	t.Helper()
	pruning.Prune(object, k.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(object, k.structural)
	defaulting.Default(object, k.structural)
	errs := validation.ValidateCustomResource(nil, object, k.schema)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return errs // as the API server, which runs rules only on what has the right shape
		}
	}
	found, _ := k.rules.Validate(t.Context(), nil, k.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, found...)
}

// ruleMessages returns the messages of all rules in a schema.
func ruleMessages(s *structural.Structural) []string {
	var messages []string
	visitor := structural.Visitor{Structural: func(s *structural.Structural) bool {
		for _, rule := range s.XValidations {
			messages = append(messages, rule.Message)
		}
		return false
	}}
	visitor.Visit(s.DeepCopy())
	return messages
}
