package folder_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/inferencecache/inferencecache/aggregator/policy"
	"github.com/inferencecache/inferencecache/aggregator/policy/folder"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const all = `
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: default, namespace: team-a}
spec:
  eviction: LFU
  evictionTTL: 10m
  minimumPrefixTokens: 128
  minimumMatchedTokens: 0
  routingFloorScore: "0.25"
  lookupTimeoutMs: 20
  affinityRouting: Disabled
  strategy: {enableChainMatching: true, requireChain: true, enableTenantHot: false}
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: default, namespace: team-b}
spec: {}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: a, namespace: team-a}
spec: {tenantID: team-a, quota: {maxIndexEntries: 1000}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: elsewhere, namespace: team-z}
spec: {tenantID: team-a, quota: {maxIndexEntries: 9}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: b, namespace: team-b}
spec: {tenantID: team-b}
`

func floor(score string) string {
	return `
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: default, namespace: team-a}
spec: {routingFloorScore: "` + score + `"}
`
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func await(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !reached(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// follow follows a folder until the test ends.
func follow(t *testing.T, dir string) *policy.Store {
	t.Helper()
	store := policy.NewStore(policy.Default(), "folder")
	source, err := folder.New(dir, store.Feed("folder"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return store
}

func TestManifestsAreInForceFromTheStart(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "all.yaml"), all)
	store := follow(t, dir)
	want := policy.Default()
	want.LFU, want.TTL, want.MinimumPrefixTokens, want.MinimumMatchedTokens = true, 10*time.Minute, 128, 0
	want.RoutingFloorScore, want.LookupTimeout, want.Affinity = 0.25, 20*time.Millisecond, false
	want.RequireChain, want.TenantHot = true, false
	if got := store.For("team-a"); *got != want {
		t.Errorf("team-a has %+v\nwant %+v", *got, want)
	}
	if got := store.For("team-b"); *got != policy.Default() {
		t.Errorf("team-b has %+v, want the default", *got)
	}
	if got := store.Limits("team-a"); !got.Quota || got.MaxPrefixes != 1000 {
		t.Errorf("team-a has limits %+v", got)
	}
	if got := store.Limits("team-b"); got.Quota {
		t.Errorf("team-b has limits %+v, want no quota", got)
	}
	if got := store.Status()[0].String(); got != "ok, 2 policies, 1 quotas" {
		t.Errorf("status %q", got)
	}
}

func TestChangesAreFollowed(t *testing.T) {
	dir := t.TempDir()
	store := follow(t, dir)
	file := filepath.Join(dir, "a.yaml")
	write(t, file, floor("0.5"))
	await(t, "a new file", func() bool { return store.For("team-a").RoutingFloorScore == 0.5 })
	write(t, file, floor("0.75"))
	await(t, "a changed file", func() bool { return store.For("team-a").RoutingFloorScore == 0.75 })
	write(t, filepath.Join(dir, ".new"), floor("0.9"))
	if err := os.Rename(filepath.Join(dir, ".new"), file); err != nil {
		t.Fatal(err)
	}
	await(t, "a replaced file", func() bool { return store.For("team-a").RoutingFloorScore == 0.9 })
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	await(t, "a file that is gone", func() bool { return store.For("team-a").RoutingFloorScore == policy.Default().RoutingFloorScore })
}

func TestMountedConfigMapIsFollowed(t *testing.T) {
	dir := t.TempDir()
	version := func(name, score string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "policy.yaml"), floor(score))
		if err := errors.Join(
			os.Symlink(name, filepath.Join(dir, "..data_tmp")),
			os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")),
		); err != nil {
			t.Fatal(err)
		}
	}
	version("..2026_1", "0.5")
	if err := os.Symlink(filepath.Join("..data", "policy.yaml"), filepath.Join(dir, "policy.yaml")); err != nil {
		t.Fatal(err)
	}
	store := follow(t, dir)
	if got := store.For("team-a").RoutingFloorScore; got != 0.5 {
		t.Fatalf("floor %v", got)
	}
	version("..2026_2", "0.75")
	await(t, "the new version", func() bool { return store.For("team-a").RoutingFloorScore == 0.75 })
}

func TestFolderThatIsWrongLeavesWhatWasInForce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), floor("0.5"))
	store := follow(t, dir)
	write(t, filepath.Join(dir, "a.yaml"), floor("0.75")+"---\nkind: CachePolicy\n")
	await(t, "an error that says what is wrong where", func() bool {
		err := fmt.Sprint(store.Err()) // before the file is written, that it is empty
		return strings.Contains(err, "a.yaml") && strings.Contains(err, "apiVersion")
	})
	if got := store.For("team-a").RoutingFloorScore; got != 0.5 {
		t.Errorf("floor %v, want the one before", got)
	}
	write(t, filepath.Join(dir, "a.yaml"), floor("0.75"))
	await(t, "the folder to be good again", func() bool { return store.Err() == nil })
	if got := store.For("team-a").RoutingFloorScore; got != 0.75 {
		t.Errorf("floor %v", got)
	}
}

func TestSoundFilesAreInForceWhereNothingWasBefore(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), floor("0.5"))
	for i := range 12 {
		write(t, filepath.Join(dir, "bad"+string(rune('a'+i))+".yaml"), "kind: Nothing\n")
	}
	store := follow(t, dir)
	if got := store.For("team-a").RoutingFloorScore; got != 0.5 {
		t.Errorf("floor %v", got)
	}
	if err := store.Err(); err == nil || !strings.Contains(err.Error(), "and 4 more") {
		t.Errorf("error %v, want a bounded list of problems", err)
	}
}

func TestPathThatIsNoFolderIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	for _, dir := range []string{file, file + "none"} {
		feed := policy.NewStore(policy.Default(), "folder").Feed("folder")
		if _, err := folder.New(dir, feed, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "read the policy folder") {
			t.Errorf("%s: error %v", dir, err)
		}
	}
}
