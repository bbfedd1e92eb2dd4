package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

const (
	defaultServer  = "127.0.0.1:9090"
	defaultTimeout = 5 * time.Second
	// maxAnswer bounds one message from the server, in bytes. The largest is a lookup's answer that
	// repeats the token ids of a prompt: a million of them at up to 5 bytes.
	maxAnswer = 16 << 20
)

// errSilent is the cause of a context that ended because a stream stood still.
var errSilent = errors.New("the server was silent")

// serverFlags say which aggregator to ask and how long to wait for it.
type serverFlags struct {
	address    string
	timeout    time.Duration
	encryption *cli.ClientTLS
}

func (f *serverFlags) add(cmd *cobra.Command, timeoutUsage string) {
	cli.Group(cmd, "Server", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.address, "server", defaultServer, "gRPC address of an aggregator, as `host:port`")
		fs.DurationVar(&f.timeout, "timeout", defaultTimeout, timeoutUsage)
	})
	f.encryption = cli.AddClientTLSFlags(cmd)
}

// connect checks the flags and returns a connection, which the caller closes. The network is first
// used by the first call.
func (f *serverFlags) connect() (*grpc.ClientConn, error) {
	if err := checkAddress(f.address); err != nil {
		return nil, cli.UsageError(fmt.Errorf("--server %q: %w", f.address, err))
	}
	if f.timeout <= 0 {
		return nil, cli.UsageError(fmt.Errorf("--timeout %s: must be more than 0", f.timeout))
	}
	encryption, err := f.encryption.Dial(slog.New(slog.DiscardHandler)) // errors are returned
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(f.address, encryption,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, cli.UsageError(fmt.Errorf("--server %q: %w", f.address, err))
	}
	return conn, nil
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" {
		return errors.New("want host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("the port must be a number from 1 to 65535")
	}
	return nil
}

// unary runs one call under the timeout. action names it in errors, as a verb and its object.
func (f *serverFlags) unary(ctx context.Context, action string, call func(context.Context, *grpc.ClientConn) error) error {
	conn, err := f.connect()
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is left to be sent
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return f.explain(action, call(ctx, conn))
}

// explain turns the error of a call into one that says what to do. It returns nil for nil.
func (f *serverFlags) explain(action string, err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	hint := ""
	switch s.Code() {
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s: no answer from %s within %s (see --timeout)", action, f.address, f.timeout)
	case codes.Unavailable:
		hint = " (is an aggregator listening there, encrypted or not as --tls says? choose it with --server or " + cli.EnvName("server") + ")"
	case codes.Unimplemented:
		hint = " (the server is no aggregator of InferenceCache, or another version of it)"
	default:
	}
	return fmt.Errorf("%s at %s: %s: %s%s", action, f.address, s.Code(), s.Message(), hint)
}

// watchdog ends a context when a stream stands still for longer than the timeout.
type watchdog struct {
	timer   *time.Timer
	timeout time.Duration
}

func newWatchdog(ctx context.Context, timeout time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &watchdog{time.AfterFunc(timeout, func() { cancel(errSilent) }), timeout}
}

// wait runs receive, counting its time alone: how slowly its results are used does not matter.
func (w *watchdog) wait(receive func() error) error {
	w.timer.Reset(w.timeout)
	defer w.timer.Stop()
	return receive()
}
