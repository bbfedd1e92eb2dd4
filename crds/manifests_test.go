package crds_test

import (
	"io/fs"
	"testing"

	"github.com/inferencecache/inferencecache/crds"
)

func TestTheAPIServerAcceptsEveryDefinition(t *testing.T) {
	files, err := fs.Glob(crds.Manifests, "manifests/*.yaml")
	if err != nil || len(files) != 6 {
		t.Fatalf("got files %v, %v; want those of six kinds", files, err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			for _, err := range definitionErrors(t, file) {
				t.Error(err)
			}
		})
	}
}
