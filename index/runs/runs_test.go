package runs_test

import (
	"testing"

	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/runs"
)

func TestRuns(t *testing.T) { indextest.Run(t, runs.New) }
