package workload

import (
	"math/rand/v2"
	"time"
)

// Between is an inclusive range that values are drawn from evenly.
type Between struct{ Min, Max int }

func (b Between) draw(r *rand.Rand) int { return b.Min + r.IntN(b.Max-b.Min+1) }

// Config shapes a generated workload: multi-turn conversations over shared system prompts.
type Config struct {
	Seed     uint64
	Requests int // turns in all

	SystemPrompts int     // distinct ones; the k-th is used 1/k as often as the first
	SystemTokens  Between // length of a system prompt
	Turns         Between // turns of a conversation
	UserTokens    Between // length of what a user says in one turn
	AnswerTokens  Between // length of an answer
	Pause         Between // milliseconds of modelled time between an answer and the next turn
}

// Chat returns the shape of a chat service: the history of a conversation is most of its prompts.
func Chat(seed uint64, requests int) Config {
	return Config{
		Seed: seed, Requests: requests,
		SystemPrompts: 12, SystemTokens: Between{256, 768},
		Turns: Between{4, 12}, UserTokens: Between{32, 320}, AnswerTokens: Between{32, 256},
		Pause: Between{2_000, 8_000},
	}
}

// Generate returns sessions with exactly c.Requests turns. They follow from c alone.
func Generate(c Config) []Session {
	r := rand.New(rand.NewPCG(c.Seed, Mix(c.Seed, 1)))
	prompts := systemPrompts(c, r)
	choose := popularity(len(prompts))
	var sessions []Session
	for left := c.Requests; left > 0; {
		system := prompts[choose(r)]
		session := conversation(c, r, system, min(left, c.Turns.draw(r)))
		sessions = append(sessions, session)
		left -= len(session)
	}
	return sessions
}

func systemPrompts(c Config, r *rand.Rand) []Span {
	prompts := make([]Span, c.SystemPrompts)
	for i := range prompts {
		prompts[i] = Span{Seed: r.Uint64(), Tokens: c.SystemTokens.draw(r)}
	}
	return prompts
}

// popularity returns a function that draws from n choices, the k-th with a weight of 1/k.
func popularity(n int) func(*rand.Rand) int {
	sums := make([]float64, n)
	total := 0.0
	for k := range sums {
		total += 1 / float64(k+1)
		sums[k] = total
	}
	return func(r *rand.Rand) int {
		x := r.Float64() * total
		for k, sum := range sums {
			if x < sum {
				return k
			}
		}
		return n - 1
	}
}

func conversation(c Config, r *rand.Rand, system Span, turns int) Session {
	session := make(Session, turns)
	for i := range session {
		said := Span{Seed: r.Uint64(), Tokens: c.UserTokens.draw(r)}
		session[i] = Turn{Input: []Span{said}, Output: c.AnswerTokens.draw(r)}
		session[i].Pause = time.Duration(c.Pause.draw(r)) * time.Millisecond
	}
	session[0].Input = []Span{system, session[0].Input[0]}
	return session
}
