package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

const (
	outputText = "text"
	outputJSON = "json"
)

// addOutputFlag defines -o.
func addOutputFlag(cmd *cobra.Command, target *string) {
	cli.EnumP(cmd.Flags(), target, "output", "o", outputText, "output form", outputText, outputJSON)
}

// writeProto prints a message as protobuf JSON on one line. Fields that are not set are printed too,
// so that a script can read any field without asking first whether it is there.
func writeProto(w io.Writer, m proto.Message) error {
	// The encoder varies its spaces on purpose; compacting makes equal answers equal text.
	loose, err := protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, loose); err != nil {
		return fmt.Errorf("encode %s: %w", m.ProtoReflect().Descriptor().Name(), err)
	}
	line.WriteByte('\n')
	_, err = w.Write(line.Bytes())
	return err
}

// writeTable prints a small table with aligned columns; the first row is the heading.
func writeTable(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				_, _ = io.WriteString(tw, "\t") // tw keeps the error for Flush
			}
			_, _ = io.WriteString(tw, orDash(cell))
		}
		_, _ = io.WriteString(tw, "\n")
	}
	return tw.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func tierName(t icpb.CacheTier) string {
	switch t {
	case icpb.CacheTier_CACHE_TIER_T1:
		return "T1"
	case icpb.CacheTier_CACHE_TIER_T2:
		return "T2"
	case icpb.CacheTier_CACHE_TIER_T3:
		return "T3"
	case icpb.CacheTier_CACHE_TIER_UNSPECIFIED:
		return ""
	default:
		return t.String()
	}
}

func share(f float32) string { return strconv.FormatFloat(float64(f), 'f', 3, 32) }
