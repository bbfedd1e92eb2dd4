package probe

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// redisTimeout bounds each step of a test.
	redisTimeout = time.Second
	// redisExpiry is how long a value stays that was not removed.
	redisExpiry = time.Minute
)

// RedisConfig says how to reach a Redis server.
type RedisConfig struct {
	// Address is host:port.
	Address string
	// Username may be empty.
	Username string
	// PasswordFile holds the password, if there is one. It is read for each connection.
	PasswordFile string
}

// Redis is a remote store. Connections are made when they are needed.
type Redis struct{ client *redis.Client }

// NewRedis returns a store at a Redis server. Close it.
func NewRedis(config RedisConfig) *Redis {
	return &Redis{redis.NewClient(&redis.Options{
		Addr: config.Address,
		CredentialsProviderContext: func(context.Context) (string, string, error) {
			password, err := readPassword(config.PasswordFile)
			return config.Username, password, err
		},
		Protocol:                 2, // what every server of the protocol speaks
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		MaxRetries:               -1, // a test that succeeds at the second try has found something
		DialerRetries:            1,
		DialTimeout:              redisTimeout,
		ReadTimeout:              redisTimeout,
		WriteTimeout:             redisTimeout,
		PoolSize:                 4,
	})}
}

func init() { redis.SetLogger(silent{}) }

// silent drops what the library logs: errors come back from calls, which report them.
type silent struct{}

// Printf implements the library's logger.
func (silent) Printf(context.Context, string, ...any) {}

func readPassword(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the Redis password: %w", err)
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// PutGet implements Store. Each call uses a name of its own, so that aggregators which test one store
// at the same time do not meet.
func (r *Redis) PutGet(ctx context.Context, name string, value []byte) error {
	key := fmt.Sprintf("inferencecache.io/probe/%s/%s", name, rand.Text())
	if err := r.client.Set(ctx, key, value, redisExpiry).Err(); err != nil {
		return fmt.Errorf("put into Redis: %w", err)
	}
	got, err := r.client.Get(ctx, key).Bytes()
	switch {
	case errors.Is(err, redis.Nil):
		err = errors.New("get from Redis: what was just put is not there")
	case err != nil:
		err = fmt.Errorf("get from Redis: %w", err)
	case !bytes.Equal(got, value):
		err = fmt.Errorf("get from Redis: got %d bytes that differ from the %d that were put", len(got), len(value))
	}
	return errors.Join(err, r.remove(ctx, key))
}

func (r *Redis) remove(ctx context.Context, key string) error {
	if err := r.client.Del(ctx, key).Err(); err != nil {
		return fmt.Errorf("remove from Redis: %w", err)
	}
	return nil
}

// Close ends the connections.
func (r *Redis) Close() error { return r.client.Close() }
