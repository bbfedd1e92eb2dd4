package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const otherFlags = "Flags"

// printUsage writes the usage part of --help: synopsis, example, subcommands, flags by heading.
func printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if cmd.Runnable() {
		fmt.Fprintf(&b, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s COMMAND\n", cmd.CommandPath())
	}
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExample:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
	}
	writeCommands(&b, cmd)
	writeFlags(&b, cmd.LocalFlags(), func(f *pflag.Flag) string { return groupOf(f, otherFlags) })
	writeFlags(&b, cmd.InheritedFlags(), func(f *pflag.Flag) string { return groupOf(f, "Global flags") })
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	if !cmd.HasAvailableSubCommands() {
		return
	}
	b.WriteString("\nCommands:\n")
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			fmt.Fprintf(b, "  %-*s %s\n", cmd.NamePadding(), child.Name(), child.Short)
		}
	}
}

func groupOf(f *pflag.Flag, otherwise string) string {
	if heading := f.Annotations[groupAnnotation]; len(heading) == 1 {
		return heading[0]
	}
	return otherwise
}

// writeFlags writes the flags under their headings, in order of definition, ungrouped ones last.
func writeFlags(b *strings.Builder, flags *pflag.FlagSet, heading func(*pflag.Flag) string) {
	sets := map[string]*pflag.FlagSet{}
	var order []string
	flags.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		h := heading(f)
		if sets[h] == nil {
			sets[h] = pflag.NewFlagSet(h, pflag.ContinueOnError)
			sets[h].SortFlags = false
			if h != otherFlags {
				order = append(order, h)
			}
		}
		sets[h].AddFlag(withEnv(f))
	})
	for _, h := range append(order, otherFlags) {
		if set := sets[h]; set != nil && set.HasAvailableFlags() {
			fmt.Fprintf(b, "\n%s:\n%s", h, set.FlagUsages())
		}
	}
}

// withEnv returns a copy of the flag whose help names its environment twin.
func withEnv(f *pflag.Flag) *pflag.Flag {
	c := *f
	if hasEnv(f.Name) {
		c.Usage += " [" + EnvName(f.Name) + "]"
	}
	return &c
}
