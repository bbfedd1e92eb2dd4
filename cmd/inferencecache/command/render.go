package command

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
	icpb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
)

type renderFlags struct {
	server  serverFlags
	request icpb.RenderTemplateRequest
	values  []string
	output  string
}

func newRender() *cobra.Command {
	var f renderFlags
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Fill the slots of a prompt template",
		Long: `Fill the slots of a PromptTemplate, as a gateway does before it looks the prompt up.

A template that is not there, or that cannot be rendered, is an answer too: its reason code is printed.`,
		Example: `  inferencecache render --template team-a/support --set system='You are kind.' --set question='Why?'
  inferencecache render --template support --tenant team-a --set system=Hi --model Qwen/Qwen3-8B -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	cli.Group(cmd, "Template", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.request.TemplateRef, "template", "", "`NAME` of the template, as namespace/name, or alone in the namespace that is the tenant's")
		fs.StringVar(&f.request.TenantId, "tenant", "", "tenant `NAME`; empty means that of the template")
		fs.StringArrayVar(&f.values, "set", nil, "the value of one slot, as `SLOT=VALUE` (repeatable)")
	})
	cli.Group(cmd, "Scope", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.request.ModelId, "model", "", "model `NAME`: with a tokenizer of it the stable part has the keys of engines' blocks")
		fs.StringVar(&f.request.HashScheme, "hash-scheme", "vllm", "`DOMAIN` in which the hashes are comparable")
	})
	must(cmd.MarkFlagRequired("template"))
	f.server.add(cmd, "longest wait for the answer")
	addOutputFlag(cmd, &f.output)
	return cmd
}

func (f *renderFlags) run(ctx context.Context, stdout io.Writer) error {
	f.request.Variables = make(map[string]string, len(f.values))
	for _, v := range f.values {
		slot, value, found := strings.Cut(v, "=")
		if !found || slot == "" {
			return cli.UsageError(fmt.Errorf("--set %q: want SLOT=VALUE", v))
		}
		f.request.Variables[slot] = value
	}
	var answer *icpb.RenderTemplateResponse
	err := f.server.unary(ctx, "render a template", func(ctx context.Context, conn *grpc.ClientConn) (err error) {
		answer, err = icpb.NewInferenceCacheClient(conn).RenderTemplate(ctx, &f.request)
		return err
	})
	if err != nil {
		return err
	}
	if f.output == outputJSON {
		return writeProto(stdout, answer)
	}
	return writeRendered(stdout, answer)
}

func writeRendered(w io.Writer, answer *icpb.RenderTemplateResponse) error {
	_, err := fmt.Fprintf(w, "%s, revision %s\n%s\n", answer.GetReasonCode(), orDash(answer.GetTemplateRevision()), stablePart(answer))
	if err == nil && len(answer.GetRenderedPrompt()) > 0 {
		_, err = fmt.Fprintf(w, "\n%s\n", answer.GetRenderedPrompt())
	}
	return err
}

// stablePart says what is known of the part that all prompts of a template share.
func stablePart(answer *icpb.RenderTemplateResponse) string {
	hash := hex.EncodeToString(answer.GetStablePrefixHash())
	switch {
	case hash == "":
		return "No stable part."
	case answer.GetStablePrefixTokens() > 0:
		return fmt.Sprintf("Stable part %s: %d tokens in blocks of %d.", hash, answer.GetStablePrefixTokens(), answer.GetBlockSize())
	case answer.GetTextReason() != "":
		return fmt.Sprintf("Stable part %s, a hash of bytes: %s.", hash, answer.GetTextReason())
	}
	return fmt.Sprintf("Stable part %s, a hash of bytes.", hash)
}
