package reference_test

import (
	"testing"

	"github.com/inferencecache/inferencecache/index/indextest"
	"github.com/inferencecache/inferencecache/index/reference"
)

func TestReference(t *testing.T) { indextest.Run(t, reference.New) }
