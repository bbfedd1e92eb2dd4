// Package kvevents receives the KV-cache events that inference engines publish: it owns the ZMQ
// sockets, checks sequence numbers, and decodes every event form that vLLM and SGLang releases send.
//
// One message is three frames: topic, sequence number (8 bytes, big-endian, counted per batch from 0
// in each engine process), and a msgpack batch. A batch is an array [timestamp, events, rank, ...] or a
// map of the same names; an event is a positional array that begins with its tag, or a map with the
// tag under "type". Fleets mix engine versions, so the form is chosen per value from its msgpack type
// byte and never from a version.
//
// Loss is data: an event that cannot be read is skipped and counted without touching its neighbours,
// and a hole in the sequence is reported with the message behind it. Token ids never appear in errors
// or logs.
package kvevents
