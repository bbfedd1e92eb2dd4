package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func TestThePageInTheTreeIsWhatTheTypesSay(t *testing.T) {
	var page bytes.Buffer
	if err := write(&page, "../../crds/v1alpha1"); err != nil {
		t.Fatal(err)
	}
	inTree, err := os.ReadFile("../../docs/crds.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(page.Bytes(), inTree) {
		t.Error("docs/crds.md is out of date: run `make generate`")
	}
}

func TestThePageHasFieldsDefaultsRulesAndConditions(t *testing.T) {
	var page bytes.Buffer
	if err := write(&page, "../../crds/v1alpha1"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Namespaced; `kubectl get cachepolicies`, short `cpol`. Columns: Eviction, InForce (wide), Since (wide), Age.",
		"| `spec.eviction` | `LRU`, `LFU` | `LRU` |",
		"| `spec.lmCache.podLocal.server.l1Capacity` | quantity, required |  |",
		"| `spec.slots[].name` | string, required |",
		"- `spec.strategy`: requireChain needs enableChainMatching",
		"- `spec.lmCache.nodeLocal.server.httpPort`: must differ from port",
		"Reasons of `QuotaExceeded`.",
		"| `WithinBudget` | False |",
	} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("page lacks %q", want)
		}
	}
}

func TestAFolderWithoutTypesIsRefused(t *testing.T) {
	if err := write(&bytes.Buffer{}, t.TempDir()); err == nil {
		t.Error("wrote a page without types")
	}
}
