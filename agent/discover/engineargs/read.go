package engineargs

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Read returns how the engine of a container is started, or nil if no engine is started there.
// Whatever the container says, Read neither fails nor panics.
func Read(c Container) (l *Launch) {
	defer func() { // the shell parser is a library, and the script is anybody's
		if fault := recover(); fault != nil {
			l = unreadable(c.Owner.Kind, "the command cannot be read: "+fmt.Sprint(fault))
		}
	}()
	vars := newVariables(c)
	argv := make([]string, 0, len(c.Command)+len(c.Args))
	for _, word := range slices.Concat(c.Command, c.Args) {
		argv = append(argv, vars.kubelet(word))
	}
	found := search(argv, vars, 0)
	switch {
	case len(found.engines) == 1:
		return found.engines[0].launch(c, vars, found.files)
	case len(found.engines) > 1 && (c.Owner.Kind == "" || len(c.Owner.Models) == 0):
		return unreadable(found.engines[0].kind, fmt.Sprintf(
			"the script starts %d engines, or one of several; say by annotations which engine and what it serves", len(found.engines)))
	case c.Owner.Kind != "":
		return command{kind: c.Owner.Kind, words: bareArguments(c)}.launch(c, vars, nil)
	}
	kind := cmp.Or(kindOfImage(c.Image), found.likely)
	switch {
	case kind != "" && found.fault != "":
		return unreadable(kind, found.fault)
	case kind != "" && len(c.Command) == 0 && len(argv) > 0: // the image's own entry point takes them
		return command{kind: kind, words: argv}.launch(c, vars, nil)
	default:
		return nil
	}
}

func unreadable(kind Kind, text string) *Launch {
	return &Launch{Kind: kind, Ranks: 1, Problems: []Problem{{EngineUnreadable, text}}}
}

// bareArguments are what an image's own entry point is given: those of a container without a command.
func bareArguments(c Container) []string {
	if len(c.Command) > 0 {
		return nil
	}
	return c.Args
}

// images are the names of engine images, without what registry, owner or tag add.
var images = []struct {
	name *regexp.Regexp
	kind Kind
}{
	{regexp.MustCompile(`^vllm(-(openai|cpu|rocm|tpu|xpu|gaudi|hpu|neuron|ascend|dev|cuda)\b.*)?$`), VLLM},
	{regexp.MustCompile(`^sglang(-(cpu|rocm|xpu|npu|dev|cuda)\b.*)?$`), SGLang},
}

// kindOfImage returns the engine that an image is named after, or nothing.
func kindOfImage(image string) Kind {
	name, _, _ := strings.Cut(path.Base(image), "@")
	name, _, _ = strings.Cut(name, ":")
	for _, known := range images {
		if known.name.MatchString(name) {
			return known.kind
		}
	}
	return ""
}

// version matches the release in an image's tag.
var version = regexp.MustCompile(`:v?(\d+)\.(\d+)\.(\d+)(?:[^\d.]|$)`)

// releasedBefore says whether the image's tag names a release older than major.minor.patch. A tag
// that names none says nothing.
func releasedBefore(image string, major, minor, patch int) bool {
	m := version.FindStringSubmatch(image)
	if m == nil {
		return false
	}
	got := []int{atoi(m[1]), atoi(m[2]), atoi(m[3])}
	return slices.Compare(got, []int{major, minor, patch}) < 0
}

// atoi reads digits; a number too large for any release counts as very large.
func atoi(digits string) (n int) {
	for _, d := range digits {
		if n < 1<<30 {
			n = 10*n + int(d-'0')
		}
	}
	return n
}
