package prompts

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"

	"github.com/inferencecache/inferencecache/aggregator/contract"
	"github.com/inferencecache/inferencecache/fingerprint"
	pb "github.com/inferencecache/inferencecache/gen/inferencecache/v1alpha1"
	"github.com/inferencecache/inferencecache/index"
	"github.com/inferencecache/inferencecache/tokenize"
)

// Tokenizer turns text into the token ids that the model's engine makes of it. It bounds what a request may cost; its
// errors have a tokenize.Reason.
type Tokenizer interface {
	Encode(ctx context.Context, model string, input tokenize.Input) (tokenize.Result, error)
}

// Service answers RenderTemplate.
type Service struct {
	Templates *Store // nil if it has no source
	Tokenizer Tokenizer
	// BlockSize returns the tokens per block of the caches that serve a scope.
	BlockSize func(index.Scope) int32
	// NamespaceKey keys the namespaces of tenants; empty means that there are none.
	NamespaceKey []byte
	// Count is called with the reason code of each answer.
	Count func(code string)
	Log   *slog.Logger
}

// Render answers one request. Where templates have no source it answers OK and nothing else: the caller's own prompt
// then stands.
func (s *Service) Render(ctx context.Context, req *pb.RenderTemplateRequest) *pb.RenderTemplateResponse {
	resp := s.render(ctx, req)
	s.Count(resp.GetReasonCode())
	return resp
}

func (s *Service) render(ctx context.Context, req *pb.RenderTemplateRequest) *pb.RenderTemplateResponse {
	if s.Templates == nil {
		return &pb.RenderTemplateResponse{ReasonCode: contract.RenderOK}
	}
	t, found, err := s.Templates.Find(req.GetTemplateRef(), req.GetTenantId())
	switch {
	case !found:
		return &pb.RenderTemplateResponse{ReasonCode: contract.RenderNotFound}
	case err != nil:
		return &pb.RenderTemplateResponse{ReasonCode: contract.RenderError} // logged when it was read
	}
	resp := &pb.RenderTemplateResponse{ReasonCode: contract.RenderOK, TemplateRevision: t.Revision}
	rendered, err := t.Render(req.GetVariables())
	if err != nil {
		s.Log.Debug("template not rendered", "template", req.GetTemplateRef(), "err", err)
		resp.ReasonCode = contract.RenderError
		return resp
	}
	resp.RenderedPrompt, resp.StablePrefixHash = rendered.Prompt, rendered.StableHash
	resp.TenantNamespace = s.namespace(req.GetTenantId())
	if req.GetModelId() != "" && rendered.Stable > 0 {
		err := s.addKeys(ctx, req, rendered, resp)
		if err != nil {
			resp.TextReason = string(tokenize.ReasonOf(err))
		}
	}
	return resp
}

// namespace is the tenant's, which nobody can guess without the key: the HMAC-SHA256 of its id.
func (s *Service) namespace(tenant string) []byte {
	if len(s.NamespaceKey) == 0 || tenant == "" {
		return nil
	}
	h := hmac.New(sha256.New, s.NamespaceKey)
	h.Write([]byte(tenant))
	return h.Sum(nil)
}

// addKeys puts the keys of the whole blocks that the stable part of the prompt fills into the answer, if there are any.
func (s *Service) addKeys(ctx context.Context, req *pb.RenderTemplateRequest, rendered Rendered, resp *pb.RenderTemplateResponse) error {
	ids, err := s.stableIDs(ctx, req.GetModelId(), string(rendered.Prompt[:rendered.Stable]), string(rendered.Prompt))
	if err != nil {
		return err
	}
	size := s.BlockSize(index.Scope{Tenant: req.GetTenantId(), Model: req.GetModelId(), Scheme: req.GetHashScheme()})
	chain := fingerprint.Chain(ids, int(size))
	if len(chain) == 0 {
		return nil
	}
	for _, key := range chain {
		resp.StableBlockHashes = binary.BigEndian.AppendUint64(resp.StableBlockHashes, key)
	}
	resp.StablePrefixHash = resp.StableBlockHashes[len(resp.StableBlockHashes)-8:]
	resp.BlockSize, resp.StablePrefixTokens = size, int32(len(chain))*size
	return nil
}

// continuation is something that no chat template writes behind a message.
const continuation = " x"

// stableIDs returns the ids at the start of the prompt that what is stable alone decides: those that stay the same
// whatever follows. The last ones before the seam may be merged with what follows, and are left out.
func (s *Service) stableIDs(ctx context.Context, model, stable, prompt string) ([]uint32, error) {
	var common []uint32
	for i, text := range []string{stable, stable + continuation, prompt} {
		got, err := s.Tokenizer.Encode(ctx, model, tokenize.Input{Prompt: text})
		switch {
		case err != nil:
			return nil, err
		case i == 0:
			common = got.IDs
		default:
			common = common[:commonLength(common, got.IDs)]
		}
	}
	return common, nil
}

func commonLength(a, b []uint32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
