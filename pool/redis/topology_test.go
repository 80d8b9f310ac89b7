package redis

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ai-process/ktms/pool"
	"github.com/ai-process/ktms/pool/pooltest"
)

// tell asks a server something that has to work.
func tell(t *testing.T, address string, words ...string) string {
	t.Helper()
	answer, err := pooltest.Command(address, words...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return answer
}

// says reports whether a server tells such a thing of itself. A server that changes its role drops connections.
func says(address, section, what string) bool {
	answer, err := pooltest.Command(address, "INFO", section)
	return err == nil && strings.Contains(answer, what)
}

// TestSentinel follows a master that changes places with its replica.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, replica := pooltest.StartRedis(t), pooltest.StartRedis(t)
	_, masterPort, _ := net.SplitHostPort(master.Addr)
	tell(t, replica.Addr, "REPLICAOF", "127.0.0.1", masterPort)
	config := filepath.Join(t.TempDir(), "sentinel.conf") // which a Sentinel wants to write to
	if err := os.WriteFile(config, []byte("sentinel monitor main 127.0.0.1 "+masterPort+" 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel := pooltest.StartSentinel(t, config)
	eventually(t, "the Sentinel knows the replica", func() bool {
		return says(sentinel.Addr, "sentinel", "slaves=1") && says(replica.Addr, "replication", "master_link_status:up")
	})

	meter := open(t, Options{Addr: "redis://" + sentinel.Addr + "?master_set=main", Timeout: hangs}).Meter()
	if err := meter.Debit(t.Context(), "before", []pool.Charge{spend(5)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the replica has it, too", func() bool { return tell(t, replica.Addr, "DBSIZE") == tell(t, master.Addr, "DBSIZE") })
	eventually(t, "the Sentinel changes the master", func() bool {
		_, err := pooltest.Command(sentinel.Addr, "SENTINEL", "FAILOVER", "main")
		return err == nil
	})
	eventually(t, "the replica is the master", func() bool {
		return says(replica.Addr, "replication", "role:master") && says(master.Addr, "replication", "role:slave")
	})
	eventually(t, "calls go to the new master", func() bool {
		err := meter.Debit(t.Context(), "after", []pool.Charge{spend(7)})
		if err != nil && !errors.Is(err, pool.ErrUnavailable) {
			t.Fatal(err)
		}
		return err == nil
	})
	if got := settled(t, meter, spend(0)); got != 12 {
		t.Errorf("%d are settled, want 12", got)
	}
}

func TestTLS(t *testing.T) {
	folder := t.TempDir()
	certificate, key := selfSigned(t, folder)
	port := freePort(t)
	pooltest.StartRedis(t, "--tls-port", port, "--tls-cert-file", certificate, "--tls-key-file", key, "--tls-auth-clients", "no")
	trusting := open(t, Options{Addr: "rediss://127.0.0.1:" + port + "?skip_verify=true", Timeout: patience}).Meter()
	if err := trusting.Debit(t.Context(), "a", []pool.Charge{spend(5)}); err != nil {
		t.Fatal(err)
	}
	if got := settled(t, trusting, spend(0)); got != 5 {
		t.Errorf("%d are settled, want 5", got)
	}
	careful := open(t, Options{Addr: "rediss://127.0.0.1:" + port, Timeout: patience}).Meter()
	if _, err := careful.Read(t.Context(), []pool.Charge{spend(0)}); !errors.Is(err, pool.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v, want that nobody vouches for the server", err)
	}
}

// selfSigned makes a certificate that nobody vouches for.
func selfSigned(t *testing.T, folder string) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	private8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("certificate", "CERTIFICATE", signed), write("key", "PRIVATE KEY", private8)
}

func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}
