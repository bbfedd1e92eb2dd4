package crds_test

import (
	"io/fs"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/inferencecache/inferencecache/crds"
	"github.com/inferencecache/inferencecache/crds/crdtest"
)

func manifestFiles(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(crds.Manifests, "manifests/*.yaml")
	if err != nil || len(files) != 6 {
		t.Fatalf("got files %v, %v; want those of six kinds", files, err)
	}
	return files
}

func schemas(t *testing.T) map[string]kindSchema {
	t.Helper()
	all := map[string]kindSchema{}
	for _, file := range manifestFiles(t) {
		s := loadSchema(t, file)
		all[s.kind] = s
	}
	return all
}

func TestTheAPIServerAcceptsEveryDefinition(t *testing.T) {
	for _, file := range manifestFiles(t) {
		t.Run(file, func(t *testing.T) {
			for _, err := range definitionErrors(t, file) {
				t.Error(err)
			}
		})
	}
}

// Client-side apply keeps the whole object in an annotation of at most 256 KiB.
func TestEveryDefinitionCanBeApplied(t *testing.T) {
	for _, file := range manifestFiles(t) {
		data, err := fs.ReadFile(crds.Manifests, file)
		if err != nil {
			t.Fatal(err)
		}
		if len(data) > 250<<10 {
			t.Errorf("%s has %d bytes: kubectl apply would refuse it", file, len(data))
		}
	}
}

func TestTheSchemaJudges(t *testing.T) {
	all := schemas(t)
	cases, err := crdtest.Cases()
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]bool{} // details of all findings
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			errs := all[c.Object["kind"].(string)].admit(t, c.Object)
			fields := []string{}
			for _, err := range errs {
				fields = append(fields, err.Field)
				said[err.Detail] = true
			}
			slices.Sort(fields)
			if diff := cmp.Diff(append([]string{}, c.Schema...), fields); diff != "" {
				t.Errorf("refused fields (-want +got):\n%s%v", diff, errs.ToAggregate())
			}
		})
	}
	for kind, s := range all {
		for _, rule := range s.messages {
			if !said[rule] {
				t.Errorf("no case breaks the rule of %s: %s", kind, rule)
			}
		}
	}
}

func TestTheSchemaFillsDefaults(t *testing.T) {
	all := schemas(t)
	defaults, err := crdtest.Defaults()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range defaults {
		t.Run(d.Name, func(t *testing.T) {
			all[d.Given["kind"].(string)].admit(t, d.Given)
			if diff := cmp.Diff(d.Stored, d.Given); diff != "" {
				t.Errorf("stored (-want +got):\n%s", diff)
			}
		})
	}
}
