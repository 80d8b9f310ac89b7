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

// watch starts a Sentinel that watches a master.
func watch(t *testing.T, master *pooltest.RedisServer, settings ...string) *pooltest.RedisServer {
	t.Helper()
	_, port, _ := net.SplitHostPort(master.Addr)
	config := filepath.Join(t.TempDir(), "sentinel.conf") // which a Sentinel wants to write to
	lines := append([]string{"sentinel monitor main 127.0.0.1 " + port + " 1"}, settings...)
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return pooltest.StartSentinel(t, config)
}

// TestSentinelHangs loses the master for a while when the first of two Sentinels is gone in a way that nobody refuses.
func TestSentinelHangs(t *testing.T) {
	t.Parallel()
	master, hung := pooltest.StartRedis(t), pooltest.StartRedis(t)
	hung.Pause(t)
	addr := "redis://" + hung.Addr + "?addr=" + watch(t, master).Addr + "&master_set=main"
	o := newOutageAt(t, master, addr, hangs/4)
	o.works()
	master.Stop()
	eventually(t, "Redis is left alone", func() bool { return o.admit(t.Context()) == errResting })
	master.Start(t)
	o.works()
}

// TestSentinelPasswords has Sentinels that want the password of the master, or know nothing of it and of its users.
func TestSentinelPasswords(t *testing.T) {
	t.Parallel()
	master := pooltest.StartRedis(t)
	tell(t, master.Addr, "ACL", "SETUSER", "ktms", "on", ">pass", "~*", "+@all")
	tell(t, master.Addr, "ACL", "SETUSER", "default", "resetpass", ">word")
	closed, free := watch(t, master, "sentinel auth-pass main word"), watch(t, master, "sentinel auth-pass main word")
	tell(t, closed.Addr, "ACL", "SETUSER", "default", "resetpass", ">word")
	for name, addr := range map[string]string{
		"the master's password": "redis://:word@" + closed.Addr,
		"none":                  "redis://:word@" + free.Addr,
		"no users":              "redis://ktms:pass@" + free.Addr,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meter := open(t, Options{Addr: addr + "?master_set=main", Timeout: patience}).Meter()
			if _, err := meter.Read(t.Context(), []pool.Charge{spend(0)}); err != nil {
				t.Error(err)
			}
		})
	}
	wrong := open(t, Options{Addr: "redis://:wrong@" + closed.Addr + "?master_set=main", Timeout: patience}).Meter()
	if _, err := wrong.Read(t.Context(), []pool.Charge{spend(0)}); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Errorf("%v does not say what to mend", err)
	}
}

// TestSentinel follows a master that changes places with its replica.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master, replica := pooltest.StartRedis(t), pooltest.StartRedis(t)
	_, masterPort, _ := net.SplitHostPort(master.Addr)
	tell(t, replica.Addr, "REPLICAOF", "127.0.0.1", masterPort)
	sentinel := watch(t, master)
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
