package doctest_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The documents use curl, but `make test` needs only Go and make. Without curl the test binary stands in under that
// name, with the options that the documents use.

// isCurl reports whether this process was started as curl.
func isCurl() bool { return filepath.Base(os.Args[0]) == "curl" }

type request struct {
	url, body   string
	header      http.Header
	fail, quiet bool // -f, -s
	show        bool // -i
	retries     int
	delay       time.Duration
	refusedToo  bool // --retry-connrefused
}

func parseCurl(args []string) (r request, err error) {
	r.header = http.Header{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		value := ""
		if takes := arg == "-H" || arg == "-d" || arg == "--retry" || arg == "--retry-delay"; takes {
			if len(args) == 0 {
				return r, fmt.Errorf("%s needs a value", arg)
			}
			value, args = args[0], args[1:]
		}
		switch {
		case arg == "-H":
			name, text, _ := strings.Cut(value, ":")
			r.header.Add(name, strings.TrimSpace(text))
		case arg == "-d":
			if path, ok := strings.CutPrefix(value, "@"); ok {
				data, err := os.ReadFile(path)
				if err != nil {
					return r, err
				}
				value = strings.NewReplacer("\r", "", "\n", "").Replace(string(data))
			}
			r.body = value
		case arg == "--retry":
			r.retries, err = strconv.Atoi(value)
		case arg == "--retry-delay":
			var n int
			n, err = strconv.Atoi(value)
			r.delay = time.Duration(n) * time.Second
		case arg == "--retry-connrefused":
			r.refusedToo = true
		case strings.HasPrefix(arg, "-"):
			for _, c := range arg[1:] {
				switch c {
				case 's':
					r.quiet = true
				case 'f':
					r.fail = true
				case 'i':
					r.show = true
				case 'N':
				default:
					return r, fmt.Errorf("option %s is not known here", arg)
				}
			}
		default:
			r.url = arg
		}
		if err != nil {
			return r, fmt.Errorf("%s: %w", arg, err)
		}
	}
	return r, nil
}

// curl returns the exit code of curl.
func curl(args []string, out io.Writer) int {
	r, err := parseCurl(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "curl:", err)
		return 2
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for try := 0; ; try++ {
		resp, err := r.do(client)
		again := err != nil && r.refusedToo || err == nil && resp.StatusCode == http.StatusServiceUnavailable
		if try < r.retries && again {
			if err == nil {
				resp.Body.Close()
			}
			<-time.After(r.delay)
			continue
		}
		if err != nil {
			if !r.quiet {
				fmt.Fprintln(os.Stderr, "curl:", err)
			}
			return 7
		}
		return r.print(resp, out)
	}
}

func (r *request) do(client *http.Client) (*http.Response, error) {
	method := http.MethodGet
	if r.body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequest(method, r.url, strings.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	req.Header = r.header
	return client.Do(req)
}

func (r *request) print(resp *http.Response, out io.Writer) int {
	defer resp.Body.Close()
	if r.fail && resp.StatusCode >= 400 {
		return 22
	}
	if r.show {
		fmt.Fprintf(out, "%s %s\r\n", resp.Proto, resp.Status)
		if err := resp.Header.Write(out); err != nil {
			return 23
		}
		fmt.Fprint(out, "\r\n")
	}
	if _, err := io.Copy(out, resp.Body); err != nil {
		return 18
	}
	return 0
}

func TestCurl(t *testing.T) {
	t.Parallel()
	r, err := parseCurl([]string{"-fs", "-N", "--retry", "3", "--retry-connrefused", "--retry-delay", "1", "http://h/",
		"-H", "A: b c", "-d", `{"a": 1}`})
	if err != nil {
		t.Fatal(err)
	}
	if !r.fail || !r.quiet || r.show || r.retries != 3 || !r.refusedToo || r.delay != time.Second ||
		r.url != "http://h/" || r.header.Get("A") != "b c" || r.body != `{"a": 1}` {
		t.Errorf("got %+v", r)
	}
	for _, bad := range [][]string{{"-X", "PUT"}, {"-H"}, {"--retry", "x"}} {
		if _, err := parseCurl(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}
