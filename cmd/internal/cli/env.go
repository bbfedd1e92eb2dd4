package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// EnvPrefix begins the name of every environment variable that the commands read.
const EnvPrefix = "INFERENCECACHE_"

// EnvName returns the environment variable that sets a flag: --grpc-bind-address has
// INFERENCECACHE_GRPC_BIND_ADDRESS.
func EnvName(flag string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// hasEnv says whether a flag has an environment twin: all but those that only print something.
func hasEnv(flag string) bool { return flag != "help" && flag != "version" }

// applyEnvironment sets each flag that was not given from its environment variable. A variable that
// is empty counts as not set. A repeatable flag takes a list separated by commas.
func applyEnvironment(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	var first error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := lookup(EnvName(f.Name))
		if !ok || value == "" || f.Changed || !hasEnv(f.Name) || first != nil {
			return
		}
		if err := setFlag(flags, f, value); err != nil {
			first = fmt.Errorf("environment variable %s: value %q for --%s: %w", EnvName(f.Name), value, f.Name, err)
		}
	})
	return first
}

func setFlag(flags *pflag.FlagSet, f *pflag.Flag, value string) error {
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		if err := f.Value.Set(value); err != nil {
			return err
		}
		f.Changed = true
		return nil
	}
	if err := list.Replace(strings.Split(value, ",")); err != nil {
		return err
	}
	f.Changed = true
	return nil
}
