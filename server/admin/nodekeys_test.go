package admin

import (
	"errors"
	"slices"
	"testing"

	"github.com/ai-process/ktms/server/status"
)

func TestNetworks(t *testing.T) {
	for _, test := range []struct{ cidrs, want []string }{
		{nil, nil},
		{[]string{"10.1.2.3/32", "fd00:1:2::/48"}, []string{"10.1.2.3/32", "fd00:1:2::/48"}},
		{[]string{"::ffff:10.0.0.0/104", "10.0.0.0/8"}, []string{"10.0.0.0/8"}},
		{[]string{"FD00::/8", "fd00:0::/8"}, []string{"fd00::/8"}},
	} {
		got, err := networks(test.cidrs)
		var text []string
		for _, network := range got {
			text = append(text, network.String())
		}
		if err != nil || !slices.Equal(text, test.want) {
			t.Errorf("%q: got %q, %v; want %q", test.cidrs, text, err, test.want)
		}
	}
	for _, wrong := range []string{"10.0.0.1", "10.0.0.0/33", "::ffff:10.0.0.0/90", "fe80::%eth0/10", "10.0/8", ""} {
		got, err := networks([]string{"10.0.0.0/8", wrong})
		var known *status.Error
		if !errors.As(err, &known) || known.Reason != status.As(status.Invalid(nil)).Reason {
			t.Errorf("%q: got %v, %v; want an invalid argument", wrong, got, err)
		}
	}
}
