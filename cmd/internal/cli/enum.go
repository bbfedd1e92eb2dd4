package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Enum defines a flag that takes one of the allowed words. Its help lists them.
func Enum(fs *pflag.FlagSet, target *string, name, value, usage string, allowed ...string) {
	EnumP(fs, target, name, "", value, usage, allowed...)
}

// EnumP is Enum for a flag that also has a one-letter name.
func EnumP(fs *pflag.FlagSet, target *string, name, shorthand, value, usage string, allowed ...string) {
	*target = value
	fs.VarP(&enum{target: target, allowed: allowed}, name, shorthand, usage+": "+strings.Join(allowed, "|"))
}

type enum struct {
	target  *string
	allowed []string
}

func (e *enum) String() string {
	if e.target == nil { // pflag asks a zero value for the default
		return ""
	}
	return *e.target
}

func (e *enum) Type() string { return "string" }

func (e *enum) Set(s string) error {
	if !slices.Contains(e.allowed, s) {
		return fmt.Errorf("must be one of %s", strings.Join(e.allowed, ", "))
	}
	*e.target = s
	return nil
}
