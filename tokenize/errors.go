package tokenize

import (
	"context"
	"errors"
)

// Reason is why a request was answered or not, as metrics label it.
type Reason string

// The reasons.
const (
	ReasonOK            Reason = "ok"
	ReasonUnavailable   Reason = "unavailable"    // this build has no tokenizers, or no models are there (yet)
	ReasonUnknownModel  Reason = "unknown_model"  // no such model is loaded
	ReasonNoTemplate    Reason = "no_template"    // the model has no chat template, or one that is refused
	ReasonTemplateError Reason = "template_error" // the chat template refuses the request or fails
	ReasonBadInput      Reason = "bad_input"      // the request is malformed
	ReasonInvalidUTF8   Reason = "invalid_utf8"   // text is not UTF-8
	ReasonNotText       Reason = "not_text"       // the request holds images, audio or other parts besides text
	ReasonTooLarge      Reason = "too_large"      // a bound on bytes, tokens or messages is exceeded
	ReasonOverloaded    Reason = "overloaded"     // too many requests are waiting, or would wait too long
	ReasonTimeout       Reason = "timeout"        // the deadline passed, or the caller has gone
	ReasonEncodeError   Reason = "encode_error"   // the tokenizer failed
)

// Reasons lists all reasons, so that a counter can exist before its first event.
func Reasons() []Reason {
	return []Reason{
		ReasonOK, ReasonUnavailable, ReasonUnknownModel, ReasonNoTemplate, ReasonTemplateError, ReasonBadInput,
		ReasonInvalidUTF8, ReasonNotText, ReasonTooLarge, ReasonOverloaded, ReasonTimeout, ReasonEncodeError,
	}
}

// Error is why a request has no ids.
type Error struct {
	Reason Reason
	err    error
}

func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Unavailable is the error of a request that finds no tokenizer.
func Unavailable(why string) error { return refuse(ReasonUnavailable, errors.New(why)) }

func refuse(reason Reason, err error) error { return &Error{Reason: reason, err: err} }

// ReasonOf returns the reason in err's chain, and ReasonOK for no error.
func ReasonOf(err error) Reason {
	var e *Error
	switch {
	case err == nil:
		return ReasonOK
	case errors.As(err, &e):
		return e.Reason
	}
	return ReasonEncodeError
}

var errRenderTimeout = errors.New("the chat template takes too long")

// ended is the error of a request whose context has ended.
func ended(ctx context.Context) error { return refuse(ReasonTimeout, context.Cause(ctx)) }
