package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/ai-process/ktms/server"
	"github.com/ai-process/ktms/store/seal"
)

const (
	// devDir holds the database and the keyring of ktms-server dev, in the folder that it is started in.
	devDir = ".ktms"
	// devClientKey and devAdminKey are known to everybody, which is why dev stays on loopback.
	devClientKey = "ktms_dev_default_key"
	devAdminKey  = "dev-bootstrap"
)

// serveDev runs the server without any set-up: on loopback, with a file beside it, with what this machine offers.
func serveDev(ctx context.Context, cfg config, stdout, stderr io.Writer) error {
	for _, addr := range []struct {
		variable string
		value    *string
	}{{"GRPC_ADDR", &cfg.GRPCAddr}, {"HTTP_ADDR", &cfg.HTTPAddr}, {"METRICS_ADDR", &cfg.MetricsAddr}} {
		if *addr.value == "" {
			continue
		}
		if os.Getenv(addr.variable) == "" {
			*addr.value = "127.0.0.1" + *addr.value
		}
		if !cfg.AllowRemote && !loopback(*addr.value) {
			return fmt.Errorf("%s=%s would let others in with well-known keys: use a loopback address, or set DEV_ALLOW_REMOTE=true",
				addr.variable, *addr.value)
		}
	}
	for _, variable := range []string{"DATABASE_URL", "REDIS_ADDR", "KTMS_ENCRYPTION_KEYS", "LLMPROXY_ENCRYPTION_KEYS"} {
		if os.Getenv(variable) != "" {
			fmt.Fprintf(stdout, "ktms-server dev: %s is ignored, dev keeps its data in %s/\n", variable, devDir)
		}
	}
	cfg.LegacyKeys, cfg.RedisAddr = "", ""
	if err := prepareDevDir(&cfg); err != nil {
		return err
	}
	if cfg.BootstrapKey == "" {
		cfg.BootstrapKey = devAdminKey
	}
	if cfg.SeedClientKey == "" {
		cfg.SeedClientKey = devClientKey
	}
	cfg.AutoSeed, cfg.dev = true, true
	fmt.Fprintln(stdout, "ktms-server dev: looking for models on this machine …")
	return serve(ctx, cfg, stderr, func(s *server.Server) { welcome(stdout, s, cfg) })
}

// loopback reports whether an address can be reached from this machine alone. A name is looked up, since it is what
// the listener will do.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil || host == "" {
		return false
	}
	resolved, err := net.ResolveIPAddr("ip", host)
	return err == nil && resolved.IP.IsLoopback()
}

// prepareDevDir makes the folder, hidden from git, and a keyring that only its owner can read. The second start finds
// both. DATABASE_URL and KTMS_ENCRYPTION_KEYS do not count here: they may name another program's database, or
// production's, and dev would put a key that everybody knows into it.
func prepareDevDir(cfg *config) error {
	if err := os.MkdirAll(devDir, 0o700); err != nil {
		return err
	}
	ignore := filepath.Join(devDir, ".gitignore")
	if _, err := os.Stat(ignore); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(ignore, []byte("*\n"), 0o600); err != nil {
			return err
		}
	}
	cfg.DatabaseURL = "sqlite:" + filepath.Join(devDir, "ktms.db")
	path := filepath.Join(devDir, "keyring")
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		content = []byte(seal.GenerateKeyring() + "\n")
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		return err
	}
	cfg.EncryptionKeys = strings.TrimSpace(string(content))
	return nil
}

// welcome prints what a newcomer needs for the first call.
func welcome(w io.Writer, s *server.Server, cfg config) {
	fmt.Fprintf(w, `
Keystone is ready. Data lives in %s/ and stays there.

  OpenAI-compatible API   http://%[2]s/v1
  gRPC, gRPC-Web, Connect %[3]s
  client key              %[4]s
  admin key               %[5]s

Try it:

  curl -s http://%[2]s/v1/chat/completions \
    -H "Authorization: Bearer %[4]s" -H "Content-Type: application/json" \
    -d '{"model":"auto","messages":[{"role":"user","content":"Say hi in three words."}]}'

`, devDir, s.Addr("http"), s.Addr("grpc"), cfg.SeedClientKey, cfg.BootstrapKey)
}

// imprintFile remembers what dev seeded last, so that a later start can tell its own models and rules from an
// operator's.
func imprintFile() string { return filepath.Join(devDir, "seeded") }

func readImprint() string {
	content, err := os.ReadFile(imprintFile())
	if err != nil {
		return "" // nothing was seeded, or nobody knows: hands off
	}
	return strings.TrimSpace(string(content))
}

func writeImprint(imprint string) error {
	return os.WriteFile(imprintFile(), []byte(imprint+"\n"), 0o600)
}
