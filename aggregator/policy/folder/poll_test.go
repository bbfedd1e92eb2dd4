package folder

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/inferencecache/inferencecache/aggregator/policy"
)

// No notice tells that the path leads to another folder now; only looking does.
func TestFolderThatIsASymlinkIsFollowedToItsNewTarget(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, "current")
	version := func(name, score string) {
		text := "{apiVersion: inferencecache.io/v1alpha1, kind: CachePolicy, metadata: {name: d, namespace: a}, spec: {routingFloorScore: '" + score + "'}}"
		if err := errors.Join(
			os.Mkdir(filepath.Join(dir, name), 0o700),
			os.WriteFile(filepath.Join(dir, name, "a.yaml"), []byte(text), 0o600),
			os.Symlink(name, at+".new"), os.Rename(at+".new", at),
		); err != nil {
			t.Fatal(err)
		}
	}
	version("1", "0.5")
	store := policy.NewStore(policy.Default(), "folder")
	source, err := New(at, store.Feed("folder"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	source.poll = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- source.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	for i, score := range []string{"0.75", "0.9"} {
		version(string(rune('2'+i)), score)
		want := []float32{0.75, 0.9}[i]
		for end := time.Now().Add(time.Minute); store.For("a").RoutingFloorScore != want; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("floor %v, want %v", store.For("a").RoutingFloorScore, want)
			}
		}
	}
}
