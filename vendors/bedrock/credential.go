package bedrock

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/transport"
)

const (
	defaultRegion = "us-east-1"
	// maxRegion is what a part of a host name may have.
	maxRegion = 63
	keyFormat = "the vendor key must have the form access_key_id:secret_access_key[:region[:session_token]]"
)

// credential is a vendor key in its parts. Only newSDK reads the secret ones.
type credential struct{ id, secret, region, token string }

var (
	keyID = regexp.MustCompile(`^[A-Za-z0-9_]+$`)
	// regionName also keeps a region from becoming another host: it is a part of the vendor's host name.
	regionName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	// secretText is what can stand in a key: no spaces and nothing that a header cannot carry.
	secretText = regexp.MustCompile(`^[!-~]+$`)
)

func parseKey(t vendors.Target) (credential, *vendors.Error) {
	parts := strings.SplitN(t.Key.Reveal(), ":", 4)
	parts = append(parts, "", "", "")
	c := credential{id: parts[0], secret: parts[1], region: parts[2], token: parts[3]}
	if c.region == "" {
		c.region = defaultRegion
	}
	if !keyID.MatchString(c.id) || !secretText.MatchString(c.secret) || !regionName.MatchString(c.region) || len(c.region) > maxRegion ||
		c.token != "" && !secretText.MatchString(c.token) {
		return credential{}, &vendors.Error{Kind: vendors.Denied, Vendor: t.Vendor, Message: keyFormat}
	}
	return c, nil
}

// shown makes a vendor's words fit to show. The parts are looked for one by one: the region is no secret.
func (c credential) shown(said string) string {
	said = transport.Redact(said, vendors.NewSecret(c.id))
	said = transport.Redact(said, vendors.NewSecret(c.token))
	return transport.Text(said, vendors.NewSecret(c.secret))
}

// endpoint is the base URL of a target; empty is the vendor's own, which follows from the region.
func endpoint(t vendors.Target) (string, *vendors.Error) {
	if t.BaseURL == "" {
		return "", nil
	}
	u, err := url.Parse(t.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The error of url.Parse holds the URL, and that may hold a credential.
		return "", &vendors.Error{Kind: vendors.Denied, Vendor: t.Vendor, Message: "the model's endpoint is not an http or https URL"}
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: strings.TrimRight(u.Path, "/")}).String(), nil
}
