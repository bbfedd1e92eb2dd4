package command

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/client/openai"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

// maxTextFile bounds a file of messages or tools, in bytes. Aggregators take 1 MiB of text.
const maxTextFile = 4 << 20

// textFlags name a prompt by its text, of which the aggregator makes token ids.
type textFlags struct{ text, raw, messages, tools, args string }

// textForms are those that are prompts by themselves.
var textForms = []string{"text", "raw-text", "messages"}

func (f *textFlags) add(cmd *cobra.Command) {
	cli.Group(cmd, "Prompt", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.text, "text", "", "one user message, as `TEXT`: the model's chat template makes the prompt of it")
		fs.StringVar(&f.raw, "raw-text", "", "the prompt of a completion, as `TEXT` that no chat template is applied to")
		fs.StringVar(&f.messages, "messages", "", "`FILE` of a chat: a JSON array of messages, or the body of a chat completion; - is standard input")
		fs.StringVar(&f.tools, "tools", "", "`FILE` of a JSON array of tools that go with --text or --messages")
		fs.StringVar(&f.args, "chat-template-kwargs", "", "further variables of the chat template, as a `JSON` object")
	})
}

// fill puts the text into the request, and says whether there was any.
func (f *textFlags) fill(r *icpb.LookupRouteRequest, stdin io.Reader) (bool, error) {
	switch {
	case f.messages != "":
		if err := f.fillChat(r, stdin); err != nil {
			return true, cli.UsageError(fmt.Errorf("--messages %s: %w", f.messages, err))
		}
	case f.text != "":
		r.PromptText = f.text
	case f.raw != "":
		r.RawText = f.raw
	}
	given := f.messages != "" || f.text != "" || f.raw != ""
	if (f.tools != "" || f.args != "") && (!given || f.raw != "") {
		return given, cli.UsageError(errors.New("--tools and --chat-template-kwargs go with --text or --messages"))
	}
	if f.tools != "" {
		raw, err := readTextFile(f.tools, stdin)
		if err != nil {
			return given, cli.UsageError(fmt.Errorf("--tools %s: %w", f.tools, err))
		}
		r.ToolsJson = string(raw)
	}
	if f.args != "" {
		r.ChatTemplateKwargsJson = f.args
	}
	return given, nil
}

func (f *textFlags) fillChat(r *icpb.LookupRouteRequest, stdin io.Reader) error {
	raw, err := readTextFile(f.messages, stdin)
	if err != nil {
		return err
	}
	if bytes.HasPrefix(raw, []byte("{")) {
		return openai.Fill(r, raw)
	}
	r.Messages, err = openai.Messages(raw)
	if err == nil && len(r.Messages) == 0 {
		err = errors.New("there are no messages")
	}
	return err
}

// readTextFile returns what is in a file, without spaces around it.
func readTextFile(name string, stdin io.Reader) ([]byte, error) {
	file, err := openInput(name, stdin)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	raw, err := io.ReadAll(io.LimitReader(file, maxTextFile+1))
	if err == nil && len(raw) > maxTextFile {
		err = fmt.Errorf("more than %d bytes", maxTextFile)
	}
	return bytes.TrimSpace(raw), err
}
