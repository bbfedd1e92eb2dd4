package daemonset

import (
	"bufio"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
)

// objectName tells objects of an install apart.
type objectName struct{ kind, namespace, name string }

func named(t *testing.T, o runtime.Object) objectName {
	t.Helper()
	access, err := meta.Accessor(o)
	if err != nil {
		t.Fatal(err)
	}
	return objectName{o.GetObjectKind().GroupVersionKind().Kind, access.GetNamespace(), access.GetName()}
}

func newBuffered(content []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(content)) }

// optional returns the documents of a file, none if it does not exist.
func optional(t *testing.T, path string) [][]byte {
	t.Helper()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return documents(t, path)
}
