package cli

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// LogOptions says how to log.
type LogOptions struct {
	format string
	level  string
}

// AddLogFlags adds --log-format and --log-level, which are checked when they are parsed.
func AddLogFlags(cmd *cobra.Command) *LogOptions {
	o := &LogOptions{}
	Group(cmd, "Logging", func(fs *pflag.FlagSet) {
		Enum(fs, &o.format, "log-format", "json", "how log lines look", "text", "json")
		Enum(fs, &o.level, "log-level", "info", "least severe level that is logged",
			"debug", "info", "warn", "warning", "error")
	})
	return o
}

// NewLogger returns a logger that writes one event per line to w.
func (o *LogOptions) NewLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level(o.level)}
	if o.format == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func level(name string) slog.Level {
	switch name {
	case "debug":
		return slog.LevelDebug
	case "warn", "warning":
		return slog.LevelWarn
	case "error":
		return slog.LevelError
	default:
		return slog.LevelInfo
	}
}
