//go:build tokenizers && cgo

package tokenize

/*
#cgo CFLAGS: -I${SRCDIR}/native
#cgo linux LDFLAGS: -ltokenizers -ldl -lm -lpthread
#cgo darwin LDFLAGS: -ltokenizers
#include "tokenizers.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// core is the part of the tokenizer library that a call asks for.
type core uint8

const (
	coreAuto   core = C.IC_CORE_AUTO
	coreStable core = C.IC_CORE_STABLE
	coreFast   core = C.IC_CORE_FAST
)

// encoder is a tokenizer of the library. encode may be called concurrently; close must not overlap it.
type encoder struct{ handle unsafe.Pointer }

func loadEncoder(json []byte) (*encoder, error) {
	if len(json) == 0 {
		return nil, errors.New("tokenizer.json is empty")
	}
	var failure *C.char
	handle := C.ic_tokenizer_load((*C.uint8_t)(unsafe.Pointer(unsafe.SliceData(json))), C.size_t(len(json)), &failure)
	if handle == nil {
		return nil, errors.New(takeString(failure))
	}
	return &encoder{handle}, nil
}

// takeString copies a string of the library and frees it.
func takeString(s *C.char) string {
	if s == nil {
		return ""
	}
	defer C.ic_string_free(s)
	return C.GoString(s)
}

// slowBecause says why the tokenizer has no fast core; empty if it has one.
func (e *encoder) slowBecause() string { return takeString(C.ic_tokenizer_slow_because(e.handle)) }

func (e *encoder) vocabSize() int { return int(C.ic_tokenizer_vocab_size(e.handle)) }

func (e *encoder) close() { C.ic_tokenizer_free(e.handle) }

func (e *encoder) encode(ctx context.Context, text string, special bool) ([]uint32, Route, error) {
	return e.encodeWith(ctx, coreAuto, text, special)
}

// routes are in the order of the library's enum.
var routes = [...]Route{RouteFast, RouteAlways, RouteCodePoint, RouteMismatch, RouteAsked}

// encodeWith runs in the caller's goroutine. The library looks at the flag that the end of ctx sets, so that a
// call whose caller has gone gives its slot back soon.
func (e *encoder) encodeWith(ctx context.Context, c core, text string, special bool) ([]uint32, Route, error) {
	if ctx.Err() != nil {
		return nil, "", ended(ctx)
	}
	cancelled := new(uint32)
	stop := context.AfterFunc(ctx, func() { atomic.StoreUint32(cancelled, 1) })
	defer stop()
	var out C.struct_ic_ids
	var failure *C.char
	status := C.ic_tokenizer_encode(e.handle, (*C.uint8_t)(unsafe.Pointer(unsafe.StringData(text))), C.size_t(len(text)),
		C.bool(special), C.uint8_t(c), (*C.uint32_t)(unsafe.Pointer(cancelled)), &out, &failure)
	switch status {
	case C.IC_OK:
		ids := make([]uint32, int(out.len))
		copy(ids, unsafe.Slice((*uint32)(unsafe.Pointer(out.ids)), int(out.len)))
		C.ic_ids_free(out)
		return ids, routes[out.route], nil
	case C.IC_INVALID_UTF8:
		return nil, "", refuse(ReasonInvalidUTF8, errors.New("the text is not UTF-8"))
	case C.IC_CANCELLED:
		return nil, "", ended(ctx)
	case C.IC_NO_FAST_CORE:
		return nil, "", refuse(ReasonEncodeError, errors.New("the tokenizer has no fast core"))
	}
	return nil, "", refuse(ReasonEncodeError, fmt.Errorf("the tokenizer fails: %s", takeString(failure)))
}
