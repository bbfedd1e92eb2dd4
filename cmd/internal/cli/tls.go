package cli

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/inferencecache/inferencecache/tlsconfig"
)

// ServerTLS are the flags that encrypt a server.
type ServerTLS struct{ files tlsconfig.Files }

// AddServerTLSFlags defines the flags.
func AddServerTLSFlags(cmd *cobra.Command) *ServerTLS {
	t := &ServerTLS{}
	Group(cmd, "TLS", func(fs *pflag.FlagSet) {
		fs.StringVar(&t.files.Certificate, "tls-cert-file", "", "PEM `file` with the certificate of the gRPC port; without one the port is not encrypted")
		fs.StringVar(&t.files.Key, "tls-key-file", "", "PEM `file` with the certificate's key")
		fs.StringVar(&t.files.CA, "mtls-client-ca-file", "", "PEM `file` with the authorities that clients need a certificate of; without one any client is served")
	})
	return t
}

// Load reads the files and returns what keeps up with them, nil if none is given.
func (t *ServerTLS) Load(log *slog.Logger) (*tlsconfig.Source, error) {
	switch f := t.files; {
	case f == tlsconfig.Files{}:
		return nil, nil //nolint:nilnil // no files are no error
	case f.Certificate == "" || f.Key == "":
		return nil, UsageError(errors.New("--tls-cert-file and --tls-key-file are needed together, and --mtls-client-ca-file needs both"))
	}
	source, err := tlsconfig.Load(t.files, 0, log)
	if err != nil {
		return nil, fmt.Errorf("load the TLS files: %w", err)
	}
	return source, nil
}

// ClientTLS are the flags that encrypt connections to an aggregator.
type ClientTLS struct {
	enabled bool
	files   tlsconfig.Files
	// ServerName is the name that the aggregator's certificate must be for; empty means the host that
	// is dialled.
	ServerName string
}

// AddClientTLSFlags defines the flags.
func AddClientTLSFlags(cmd *cobra.Command) *ClientTLS {
	t := &ClientTLS{}
	Group(cmd, "TLS", func(fs *pflag.FlagSet) {
		fs.BoolVar(&t.enabled, "tls", false, "encrypt connections to aggregators and verify who answers")
		fs.StringVar(&t.files.CA, "tls-ca-file", "", "PEM `file` with the authorities that aggregators need a certificate of (default: those of the system)")
		fs.StringVar(&t.files.Certificate, "tls-cert-file", "", "PEM `file` with a certificate to show to aggregators")
		fs.StringVar(&t.files.Key, "tls-key-file", "", "PEM `file` with the certificate's key")
		fs.StringVar(&t.ServerName, "tls-server-name", "", "`name` that an aggregator's certificate must be for (default: the host of its address)")
	})
	return t
}

// Load reads the files and returns what keeps up with them, nil if connections are not encrypted.
func (t *ClientTLS) Load(log *slog.Logger) (*tlsconfig.Source, error) {
	switch {
	case !t.enabled && (t.files != tlsconfig.Files{} || t.ServerName != ""):
		return nil, UsageError(errors.New("--tls-ca-file, --tls-cert-file, --tls-key-file and --tls-server-name need --tls"))
	case !t.enabled:
		return nil, nil //nolint:nilnil // not encrypted is no error
	case t.files.Check() != nil:
		return nil, UsageError(errors.New("--tls-cert-file and --tls-key-file are needed together"))
	}
	source, err := tlsconfig.Load(t.files, 0, log)
	if err != nil {
		return nil, fmt.Errorf("load the TLS files: %w", err)
	}
	return source, nil
}

// Dial returns the option that makes one connection as the flags say, for commands that are over
// before files change.
func (t *ClientTLS) Dial(log *slog.Logger) (grpc.DialOption, error) {
	source, err := t.Load(log)
	if err != nil {
		return nil, err
	}
	if source == nil {
		return grpc.WithTransportCredentials(insecure.NewCredentials()), nil
	}
	return grpc.WithTransportCredentials(source.Client(t.ServerName)), nil
}
