// The interface of the static library that the Go package calls. All functions may be called from any thread;
// ic_tokenizer_free alone must not overlap another call with the same tokenizer.
#ifndef INFERENCECACHE_TOKENIZERS_H
#define INFERENCECACHE_TOKENIZERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A status of ic_tokenizer_encode.
enum { IC_OK = 0, IC_INVALID_UTF8 = 1, IC_CANCELLED = 2, IC_FAILED = 3, IC_NO_FAST_CORE = 4 };

// Which core to ask.
enum { IC_CORE_AUTO = 0, IC_CORE_STABLE = 1, IC_CORE_FAST = 2 };

// The ids of a text. route says which core answered and why: see Route in src/tokenizer.rs.
struct ic_ids {
  uint32_t *ids;
  size_t len;
  size_t cap;
  uint8_t route;
};

// Loads a tokenizer.json. NULL on failure, with *error set to a message to be freed with ic_string_free.
void *ic_tokenizer_load(const uint8_t *json, size_t len, char **error);

// Why the tokenizer has no fast core, to be freed with ic_string_free; NULL where it has one.
char *ic_tokenizer_slow_because(const void *tokenizer);

// Number of ids, added tokens included.
size_t ic_tokenizer_vocab_size(const void *tokenizer);

// Encodes len bytes of UTF-8, which may hold NUL. Any value but 0 in *cancel ends the call early. Fills *out on
// IC_OK, to be freed with ic_ids_free; sets *error on IC_FAILED.
int32_t ic_tokenizer_encode(const void *tokenizer, const uint8_t *text, size_t len, bool special, uint8_t core,
                            const uint32_t *cancel, struct ic_ids *out, char **error);

void ic_ids_free(struct ic_ids ids);
void ic_string_free(char *string);
void ic_tokenizer_free(void *tokenizer);

#endif
