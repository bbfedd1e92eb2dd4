package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/inferencecache/inferencecache/aggregator"
	"github.com/inferencecache/inferencecache/aggregator/auth"
	"github.com/inferencecache/inferencecache/aggregator/probe"
	"github.com/inferencecache/inferencecache/cmd/internal/cli"
)

// adminFlags say how /snapshot, /policy and /probe are served, and to whom.
type adminFlags struct {
	admin    aggregator.Admin
	insecure bool
	redis    probe.RedisConfig
	// unasked says that nobody asked for the endpoints, so that none is served.
	unasked bool
}

func (f *adminFlags) add(cmd *cobra.Command) {
	cli.Group(cmd, "Snapshots, policies and probes", func(fs *pflag.FlagSet) {
		fs.StringVar(&f.admin.Address, "snapshot-bind-address", ":8081", "host:port for /snapshot, /policy and /probe, served once it is said who may call; empty serves none of them")
		fs.StringVar(&f.admin.User, "allowed-controller-sa", "", "only `user` that may call them, as system:serviceaccount:NAMESPACE:NAME")
		fs.BoolVar(&f.insecure, "insecure-disable-auth", false, "let everybody call them")
		fs.StringVar(&f.admin.ControllerAudience, "controller-audience", auth.ControllerAudience, "audience of the tokens for /snapshot and /probe")
		fs.StringVar(&f.admin.PolicyAudience, "policy-audience", auth.PolicyAudience, "audience of the tokens for /policy")
		fs.StringVar(&f.redis.Address, "t2-redis-address", "", "host:port of the Redis that engines keep T2 blocks in, for /probe to test; empty skips that test")
		fs.StringVar(&f.redis.Username, "t2-redis-username", "", "user `name` at that Redis")
		fs.StringVar(&f.redis.PasswordFile, "t2-redis-password-file", "", "`file` with the password at that Redis")
	})
}

// check refuses to start where it is not clear who may call. Without a word about the endpoints they
// are not served: that is safe, and an aggregator alone on a machine needs no flag for it.
func (f *adminFlags) check(flags *pflag.FlagSet) error {
	given := flags.Changed("snapshot-bind-address") || flags.Changed("allowed-controller-sa")
	if f.unasked = !given && !f.insecure; f.unasked {
		f.admin.Address = ""
	}
	if f.admin.Address == "" {
		return nil
	}
	if f.redis.Address == "" && (f.redis.Username != "" || f.redis.PasswordFile != "") {
		return errors.New("--t2-redis-username and --t2-redis-password-file need --t2-redis-address")
	}
	if f.redis.Address != "" {
		if _, _, err := net.SplitHostPort(f.redis.Address); err != nil {
			return fmt.Errorf("--t2-redis-address %q must be host:port", f.redis.Address)
		}
	}
	switch named := f.admin.User != ""; {
	case named && f.insecure:
		return errors.New("--allowed-controller-sa and --insecure-disable-auth exclude each other: " +
			"either one user may call --snapshot-bind-address, or everybody")
	case !named && !f.insecure:
		return errors.New("who may call --snapshot-bind-address? Name the user with --allowed-controller-sa, " +
			"let everybody call with --insecure-disable-auth, or serve nothing there with --snapshot-bind-address=''")
	case f.insecure:
		return nil
	}
	return f.checkNames()
}

// checkNames finds names that no token has, such as one with a line end from a file.
func (f *adminFlags) checkNames() error {
	for _, flag := range []struct{ name, value string }{
		{"--allowed-controller-sa", f.admin.User},
		{"--controller-audience", f.admin.ControllerAudience},
		{"--policy-audience", f.admin.PolicyAudience},
	} {
		if flag.value == "" || strings.TrimSpace(flag.value) != flag.value {
			return fmt.Errorf("%s %q must not be blank, nor begin or end with white space", flag.name, flag.value)
		}
	}
	return nil
}

// connect prepares what the endpoints depend on. The caller calls closeAll.
func (f *adminFlags) connect(log *slog.Logger, kubeconfig string) (admin aggregator.Admin, closeAll func(), err error) {
	admin, closeAll = f.admin, func() {}
	switch {
	case f.unasked:
		log.Info("the snapshot, policy and probe endpoints are not served: nobody is allowed to call them",
			"to_serve", "--allowed-controller-sa or --insecure-disable-auth")
		return admin, closeAll, nil
	case admin.Address == "":
		return admin, closeAll, nil
	case f.insecure:
		admin.Open = true
		log.Warn("anybody who reaches it may call the snapshot, policy and probe endpoints", "address", admin.Address)
	default:
		if admin.Reviewer, err = auth.NewKubernetes(kubeconfig); err != nil {
			return admin, closeAll, err
		}
		log.Info("callers of the snapshot, policy and probe endpoints are checked", "allowed", admin.User)
	}
	if f.redis.Address != "" {
		store := probe.NewRedis(f.redis)
		admin.Store, closeAll = store, func() { _ = store.Close() } // nothing is left to be sent
	}
	return admin, closeAll, nil
}
