package openai

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/ai-process/ktms/vendors"
)

// The paths of the API below its base.
const (
	chatPath       = "/chat/completions"
	embeddingsPath = "/embeddings"
)

// endpoint is the address of a target's API. A base URL may name the chat path itself, too.
//
// A base URL without a path is taken for a host whose API is under /v1, as it is for every server but DeepSeek's, which
// has it at both places.
func endpoint(t vendors.Target, d *dialect, api string) (string, *vendors.Error) {
	base := t.BaseURL
	if base == "" {
		base = d.baseURL
	}
	if base == "" {
		return "", &vendors.Error{Kind: vendors.Denied, Vendor: t.Vendor, Message: "the model has no endpoint"}
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		// The error of url.Parse holds the URL, and that may hold a credential.
		return "", &vendors.Error{Kind: vendors.Denied, Vendor: t.Vendor, Message: "the model's endpoint is not an http or https URL"}
	}
	u.Fragment = ""
	path := strings.TrimRight(u.Path, "/")
	named := strings.HasSuffix(path, chatPath)
	path = strings.TrimSuffix(path, chatPath)
	if d.azure {
		path = strings.TrimSuffix(path, embeddingsPath)
	}
	switch {
	case d.azure:
		azurePath(u, path, t.Model, api)
		return u.String(), nil
	case path == "" && base != d.baseURL && !named:
		path = "/v1" + api
	default:
		path += api
	}
	// What is escaped in the endpoint stays so.
	raw := strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), chatPath)
	u.RawPath = raw + path[len(strings.TrimSuffix(strings.TrimRight(u.Path, "/"), chatPath)):]
	u.Path = path
	return u.String(), nil
}

// deploymentPath is the end of an address that names a deployment, as Azure's portal shows it.
var deploymentPath = regexp.MustCompile(`/openai/deployments/[^/]+$`)

// azurePath addresses a deployment by its path where the endpoint names a dated api-version, and otherwise the newer
// API, where the model in the body is the deployment.
func azurePath(u *url.URL, path, model, api string) {
	version := u.Query().Get("api-version")
	newer := strings.HasSuffix(path, "/v1") || version == "" || version == "preview" || version == "v1"
	path = deploymentPath.ReplaceAllString(path, "") // the model's id is the deployment
	path = strings.TrimSuffix(strings.TrimSuffix(path, "/v1"), "/openai")
	if newer {
		u.Path, u.RawPath = path+"/openai/v1"+api, ""
		return
	}
	u.Path = path + "/openai/deployments/" + model + api
	u.RawPath = path + "/openai/deployments/" + url.PathEscape(model) + api
}
