package main

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

// testKeyring is well formed and worthless.
const testKeyring = "1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// environment sets exactly these variables for the test.
func environment(t *testing.T, set map[string]string) {
	t.Helper()
	for _, line := range os.Environ() {
		name, old, _ := strings.Cut(line, "=")
		if name == "PATH" || name == "HOME" || name == "TMPDIR" {
			continue
		}
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Setenv(name, old) })
	}
	for name, value := range set {
		t.Setenv(name, value)
	}
}

func TestReadConfig_Defaults(t *testing.T) {
	environment(t, map[string]string{"DATABASE_URL": "postgres://db/ktms", "KTMS_ENCRYPTION_KEYS": testKeyring})
	cfg, err := readConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.GRPCAddr != ":9090" || cfg.HTTPAddr != ":8080" || cfg.MetricsAddr != ":9091" || cfg.APITimeout != 5*time.Minute ||
		cfg.MaxMessage != 16777216 || cfg.MaxBody != 32<<20 || cfg.StaleIfError != 5*time.Minute || cfg.DBTimeout != 3*time.Second ||
		cfg.ReloadSeconds != 60 || cfg.MaxConns != 25 || cfg.MinConns != 5 || cfg.BreakerThreshold != 5 || cfg.MaxPause != 5*time.Minute {
		t.Errorf("unexpected defaults: %+v", cfg)
	}
}

func TestReadConfig_EmptyMetricsAddrDisables(t *testing.T) {
	environment(t, map[string]string{"DATABASE_URL": "sqlite:x", "KTMS_ENCRYPTION_KEYS": testKeyring, "METRICS_ADDR": ""})
	cfg, err := readConfig(false)
	if err != nil || cfg.MetricsAddr != "" {
		t.Errorf("got %q, %v", cfg.MetricsAddr, err)
	}
}

func TestReadConfig_TheOldKeyringNameWorks(t *testing.T) {
	environment(t, map[string]string{"DATABASE_URL": "sqlite:x", "LLMPROXY_ENCRYPTION_KEYS": testKeyring})
	if cfg, err := readConfig(false); err != nil || cfg.EncryptionKeys != testKeyring {
		t.Errorf("got %v", err)
	}
}

func TestReadConfig_EveryMistakeAtOnce(t *testing.T) {
	environment(t, map[string]string{
		"DATABASE_URL": "mysql://root:hunter2@db/ktms", "HTTP_API_TIMEOUT": "soon", "DB_MAX_CONNS": "many", "LOG_LEVEL": "loud",
		"AUTH_STALE_IF_ERROR": "-1s", "OPENAI_BASE_URL": "api.example.com", "GUARDRAILS_ENABLED": "true", "ROUTING_RELOAD_SECONDS": "0", "AUTO_SEED": "maybe", "KTMS_ENCRYPTION_KEYS": "1:short",
	})
	_, err := readConfig(false)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"DATABASE_URL", "KTMS_ENCRYPTION_KEYS", "HTTP_API_TIMEOUT", "DB_MAX_CONNS", "LOG_LEVEL",
		"AUTH_STALE_IF_ERROR", "OPENAI_BASE_URL", "GUARDRAILS_ENABLED", "ROUTING_RELOAD_SECONDS", "AUTO_SEED"} {
		if strings.Count(err.Error(), want) != 1 {
			t.Errorf("%s is not named once in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the password shows: %v", err)
	}
}

func TestReadConfig_EachValueIsChecked(t *testing.T) {
	for variable, values := range map[string]map[string]bool{
		"SPEND_LIMITS_FAIL_MODE": {"open": true, "closed": true, "ajar": false},
		"BUDGET_GRACE_MARGIN":    {"0": true, "-1": true, "0.05": true, "NaN": false, "5": false, "little": false},
		"GUARDRAILS_ENABLED":     {"false": true, "0": true, "FALSE": true, "true": false, "1": false},
		"SEED_CLIENT_KEY":        {"ktms_mine": true, "mine": false, "ktms_node_mine": false},
	} {
		for value, fine := range values {
			environment(t, map[string]string{"DATABASE_URL": "sqlite:x", "KTMS_ENCRYPTION_KEYS": testKeyring, variable: value})
			if _, err := readConfig(false); (err == nil) != fine {
				t.Errorf("%s=%s: %v", variable, value, err)
			}
		}
	}
}

func TestReadConfig_NodesInWords(t *testing.T) {
	for name, test := range map[string]struct {
		set  map[string]string
		says []string
	}{
		"as they are": {nil, nil},
		"no numbers": {map[string]string{"NODE_HEARTBEAT_INTERVAL_SECONDS": "5s", "NODE_ALLOW_LOCALHOST_ENDPOINTS": "yes", "NODE_SWEEP_INTERVAL": "5", "NODE_PREFIX_AFFINITY": "much"},
			[]string{`NODE_HEARTBEAT_INTERVAL_SECONDS must be a whole number, not "5s"`, `NODE_ALLOW_LOCALHOST_ENDPOINTS must be true or false`, "NODE_SWEEP_INTERVAL must be a duration", "NODE_PREFIX_AFFINITY must be a number"}},
		"too small": {map[string]string{"NODE_HEARTBEAT_TTL_SECONDS": "-15", "NODE_RETENTION_TTL_DAYS": "0", "NODE_SWEEP_INTERVAL": "0s"},
			[]string{"NODE_HEARTBEAT_TTL_SECONDS must be greater than 0", "NODE_RETENTION_TTL_DAYS must be greater than 0", "NODE_SWEEP_INTERVAL must be greater than 0"}},
		"too large": {map[string]string{"NODE_HEARTBEAT_INTERVAL_SECONDS": "86401", "NODE_HEARTBEAT_TTL_SECONDS": "86402", "NODE_RETENTION_TTL_DAYS": "106752"},
			[]string{"NODE_HEARTBEAT_INTERVAL_SECONDS must be at most 86400", "NODE_HEARTBEAT_TTL_SECONDS must be at most 86400", "NODE_RETENTION_TTL_DAYS must be at most 3650"}},
		"offline between heartbeats": {map[string]string{"NODE_HEARTBEAT_INTERVAL_SECONDS": "15"}, []string{"NODE_HEARTBEAT_TTL_SECONDS must be greater than NODE_HEARTBEAT_INTERVAL_SECONDS"}},
		"affinity":                   {map[string]string{"NODE_PREFIX_AFFINITY": "NaN"}, []string{"NODE_PREFIX_AFFINITY must be from 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			set := map[string]string{"DATABASE_URL": "sqlite:x", "KTMS_ENCRYPTION_KEYS": testKeyring}
			maps.Copy(set, test.set)
			environment(t, set)
			_, err := readConfig(false)
			if (err != nil) != (test.says != nil) {
				t.Fatalf("got %v", err)
			}
			for _, want := range test.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in:\n%v", want, err)
				}
			}
		})
	}
}
