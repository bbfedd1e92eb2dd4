package fingerprint

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// vectorsEnv names a folder with further vector files.
const vectorsEnv = "INFERENCECACHE_VECTORS"

// goldenFile is a file of vectors made by another implementation. Numbers are strings: they do not fit
// the floats that many JSON readers use.
type goldenFile struct {
	Chains []goldenChain `json:"chains"`
}

type goldenChain struct {
	Name         string   `json:"name"`
	BlockSize    int      `json:"block_size"`
	Parent       *string  `json:"parent"`
	TokenIDs     []uint32 `json:"token_ids"`
	Content      []string `json:"content"`
	Prefix       []string `json:"prefix"`
	PrefixHex    []string `json:"prefix_hex"`
	PrefixBase64 []string `json:"prefix_base64"`
}

func TestChainAgreesWithGoldenVectors(t *testing.T) {
	if n := checkGoldenFile(t, "testdata/golden_vectors.json"); n < 50 {
		t.Errorf("%d vectors, want at least 50", n)
	}
}

func TestChainAgreesWithVectorsOfAFolder(t *testing.T) {
	folder := os.Getenv(vectorsEnv)
	if folder == "" {
		t.Skipf("%s names no folder of vectors", vectorsEnv)
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	vectors := 0
	for _, file := range files {
		vectors += checkGoldenFile(t, file)
	}
	if vectors == 0 {
		t.Errorf("no vectors in the *.json of %s", folder)
	}
	t.Logf("%d vectors in %s", vectors, folder)
}

// checkGoldenFile runs the vectors of a file as subtests and returns their number.
func checkGoldenFile(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var golden goldenFile
	if err := json.Unmarshal(data, &golden); err != nil {
		t.Fatalf("read vectors of %s: %v", file, err)
	}
	for _, c := range golden.Chains {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json")+"/"+c.Name, func(t *testing.T) { c.check(t) })
	}
	return len(golden.Chains)
}

func (c goldenChain) check(t *testing.T) {
	var got []uint64
	if c.Parent == nil {
		got = Chain(c.TokenIDs, c.BlockSize)
	} else {
		parent, err := strconv.ParseUint(*c.Parent, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		got = ChainFrom(parent, c.TokenIDs, c.BlockSize)
	}
	var contents, prefixes, inHex, inBase64 []string
	for i, h := range got {
		key := Key(h)
		contents = append(contents, strconv.FormatUint(Content(c.TokenIDs[i*c.BlockSize:(i+1)*c.BlockSize]), 10))
		prefixes = append(prefixes, strconv.FormatUint(h, 10))
		inHex = append(inHex, hex.EncodeToString(key[:]))
		inBase64 = append(inBase64, base64.StdEncoding.EncodeToString(key[:]))
	}
	forms := []struct {
		name      string
		got, want []string
	}{
		{"content", contents, c.Content},
		{"prefix", prefixes, c.Prefix},
		{"prefix_hex", inHex, c.PrefixHex},
		{"prefix_base64", inBase64, c.PrefixBase64},
	}
	for _, form := range forms {
		if !slices.Equal(form.got, form.want) {
			t.Errorf("%s is %v, want %v", form.name, form.got, form.want)
		}
	}
}
