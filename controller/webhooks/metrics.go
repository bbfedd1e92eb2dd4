package webhooks

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Metrics count answers.
type Metrics struct{ answers *prometheus.CounterVec }

// NewMetrics registers the metrics.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	m := &Metrics{answers: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "inferencecache_controller_admissions_total",
		Help: "Answers of the webhooks, by verb (mutate, validate), kind and answer: allowed, refused, error (the controller could not decide).",
	}, []string{"verb", "kind", "answer"})}
	registry.MustRegister(m.answers)
	return m
}

// counted returns the handler, counting its answers.
func (m *Metrics) counted(verb, kind string, handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		response := handler.Handle(ctx, request)
		m.answers.WithLabelValues(verb, kind, answerOf(response)).Inc()
		return response
	})
}

func answerOf(r admission.Response) string {
	switch {
	case r.Allowed:
		return "allowed"
	case r.Result != nil && r.Result.Code >= http.StatusInternalServerError:
		return "error"
	default:
		return "refused"
	}
}
