package redis

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

func TestAddresses(t *testing.T) {
	type parsed struct {
		addresses      []string
		user, password string
		db             int
		tls            bool
		master         string
	}
	for _, test := range []struct {
		options Options
		want    parsed
	}{
		{Options{Addr: "redis:6379"}, parsed{addresses: []string{"redis:6379"}}},
		{Options{Addr: "redis:6379", Password: "p", DB: 3}, parsed{addresses: []string{"redis:6379"}, password: "p", db: 3}},
		{Options{Addr: "[::1]:6379"}, parsed{addresses: []string{"[::1]:6379"}}},
		{Options{Addr: "a:1, b:2,c:3"}, parsed{addresses: []string{"a:1", "b:2", "c:3"}}},
		{Options{Addr: "redis://h"}, parsed{addresses: []string{"h:6379"}}},
		{Options{Addr: "redis://u:p%40@h:7/2", Password: "x", DB: 9}, parsed{addresses: []string{"h:7"}, user: "u", password: "p@", db: 2}},
		{Options{Addr: "redis://h:7/0", DB: 9}, parsed{addresses: []string{"h:7"}}},
		{Options{Addr: "redis://h:7?db=0", DB: 9}, parsed{addresses: []string{"h:7"}}},
		{Options{Addr: "redis://h:7?addr=i:8", DB: 9}, parsed{addresses: []string{"h:7", "i:8"}, db: 9}},
		{Options{Addr: "unix:///run/redis.sock", DB: 9}, parsed{addresses: []string{"/run/redis.sock"}, db: 9}},
		{Options{Addr: "redis://h:7", Password: "x", DB: 9}, parsed{addresses: []string{"h:7"}, password: "x", db: 9}},
		{Options{Addr: "rediss://:p@h:7"}, parsed{addresses: []string{"h:7"}, password: "p", tls: true}},
		{Options{Addr: "redis://a:1?addr=b:2&addr=c:3"}, parsed{addresses: []string{"a:1", "b:2", "c:3"}}},
		{Options{Addr: "redis://a:1?addr=b:2&master_set=m"}, parsed{addresses: []string{"a:1", "b:2"}, master: "m"}},
		{Options{Addr: "unix:///run/redis.sock?db=4"}, parsed{addresses: []string{"/run/redis.sock"}, db: 4}},
	} {
		test.options.Timeout = time.Second
		got, err := parseAddress(test.options)
		if err != nil {
			t.Errorf("%+v: %v", test.options, err)
			continue
		}
		is := parsed{got.InitAddress, got.Username, got.Password, got.SelectDB, got.TLSConfig != nil, got.Sentinel.MasterSet}
		if !reflect.DeepEqual(is, test.want) {
			t.Errorf("%+v becomes\n%+v, want\n%+v", test.options, is, test.want)
		}
		if (got.Sentinel.TLSConfig != nil) != test.want.tls {
			t.Errorf("%+v asks Sentinels with other security than their master", test.options)
		}
	}
}

// TestAddressOverridesNothingOfOurs holds that a URL cannot bring back what would book twice or hang.
func TestAddressOverridesNothingOfOurs(t *testing.T) {
	got, err := parseAddress(Options{
		Addr: "redis://h:1?max_retries=9&dial_timeout=1h&write_timeout=1h&client_cache=0", Timeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	if !got.DisableRetry || got.Dialer.Timeout != connectWithin || got.ConnWriteTimeout != time.Second || got.DisableCache {
		t.Errorf("%+v", got)
	}
}

func TestMalformedOptions(t *testing.T) {
	const secret = "hunter2"
	for _, options := range []Options{
		{Addr: ""},
		{Addr: "redis"},
		{Addr: "redis:"},
		{Addr: ":6379"},
		{Addr: "redis:six"},
		{Addr: "redis:0"},
		{Addr: "redis:65536"},
		{Addr: "a:1,"},
		{Addr: "a:1,b"},
		{Addr: "user:hunter2@redis:6379"},
		{Addr: "http://:hunter2@redis:6379"},
		{Addr: "redis://:hunter2@redis:six"},
		{Addr: "redis://:hunter2%zz@redis:6379"},
		{Addr: "redis://:hunter2/@redis:6379"},
		{Addr: "redis://:hunter2@redis:6379/hunter2"},
		{Addr: "redis://redis:6379?db=hunter2"},
		{Addr: "redis://redis:6379?dial_timeout=hunter2"},
		{Addr: "redis:6379", KeyPrefix: "{a}"},
		{Addr: "redis:6379", KeyPrefix: "a}"},
	} {
		client, err := New(options)
		if err == nil {
			client.Close()
			t.Errorf("%+v is taken", options)
			continue
		}
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%+v: the error tells the password: %v", options, err)
		}
	}
}

func TestDescribeHidesSecrets(t *testing.T) {
	connect, err := parseAddress(Options{Addr: "redis://u:hunter2@h:1", Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c := &Client{secrets: secretsOf(connect)}
	// What servers say that do not know HELLO.
	said := rueidis.NewErrorResult(errText("ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'u' 'hunter2'")).Error()
	if got := c.describe(said); strings.Contains(got, "hunter2") || !strings.Contains(got, "[secret]") {
		t.Error(got)
	}
}

type errText string

func (e errText) Error() string { return string(e) }
