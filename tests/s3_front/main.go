// What stands in front of a server of S3 in tests, and hands each request on.
//
// It makes a write of a key exclude whatever else is asked of that key, as Amazon's store does: versitygw looks for the object, writes its
// ETag and then the object, so that a second writer at the same moment may win as well, or is told of an object that is not there yet.
// It counts requests and keeps a line of each, and lets the store be slow or ill: /-/counts, /-/log, /-/reset, /-/delay?ms=20,
// /-/fault?kind=slow&every=7&method=PUT&after=100.
// And it answers for a bucket of very many objects by itself (made.go).
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"hash/fnv"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	stripes = 1024
	lines   = 10000 // that are kept
)

// What /-/fault asks for, of each so manieth request after some, and from the first one on that has `Since` in its method and address. Kind: slow (503 SlowDown), error (500), expired (400 ExpiredToken) and gone
// (404 NoSuchBucket) are answered instead of the store; before (the connection ends, nothing was done), cut (it is done, and the answer ends
// half way), deaf (the condition of a PUT is dropped).
type fault struct {
	Kind, Method       string
	Since              string
	Every, After, Seen int
}

type front struct {
	store  http.Handler
	keys   [stripes]sync.RWMutex
	mutex  sync.Mutex
	counts map[string]int
	log    []string
	delay  time.Duration
	fault  fault
	made   int
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where requests come in")
	to := flag.String("to", "", "the URL of the server")
	flag.Parse()
	target, err := url.Parse(*to)
	if err != nil {
		log.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host // it is part of what was signed
		},
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			MaxIdleConnsPerHost: 256,
			DisableCompression:  true,
		},
	}
	log.Fatal(http.ListenAndServe(*listen, &front{store: proxy, counts: map[string]int{}, log: []string{}}))
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.URL.Path) > 2 && r.URL.Path[:3] == "/-/" {
		f.told(w, r)
		return
	}
	kind, delay := f.noted(r)
	time.Sleep(delay)
	if f.made > 0 && isMade(r) {
		made(w, r, f.made)
		return
	}
	if kind == "" || kind == "deaf" {
		if kind == "deaf" {
			r.Header.Del("If-None-Match")
		}
		f.pass(w, r)
		return
	}
	f.ill(kind, w, r)
}

// What is to happen to a request, and after how long.
func (f *front) noted(r *http.Request) (string, time.Duration) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	name := r.Method
	if r.Method == "GET" && (r.URL.Query().Has("list-type") || r.URL.Query().Has("delimiter")) {
		name = "LIST"
	}
	f.counts[name]++
	if len(f.log) < lines {
		f.log = append(f.log, name+" "+r.URL.RequestURI()+" "+r.UserAgent())
	}
	if f.fault.Every == 0 || f.fault.Method != "" && f.fault.Method != name {
		return "", f.delay
	}
	if !strings.Contains(name+" "+r.URL.RequestURI(), f.fault.Since) {
		return "", f.delay
	}
	f.fault.Since = ""
	f.fault.Seen++
	if f.fault.Seen <= f.fault.After || (f.fault.Seen-f.fault.After)%f.fault.Every != 0 {
		return "", f.delay
	}
	return f.fault.Kind, f.delay
}

func (f *front) pass(w http.ResponseWriter, r *http.Request) {
	hash := fnv.New32a()
	io.WriteString(hash, r.URL.Path)
	key := &f.keys[hash.Sum32()%stripes]
	if r.Method == "GET" || r.Method == "HEAD" {
		key.RLock()
		defer key.RUnlock()
	} else {
		// All of it is read first, so that a slow writer of one key does not hold another's.
		content, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(bytes.NewReader(content))
		key.Lock()
		defer key.Unlock()
	}
	f.store.ServeHTTP(w, r)
}

func (f *front) ill(kind string, w http.ResponseWriter, r *http.Request) {
	switch kind {
	case "slow":
		refuse(w, http.StatusServiceUnavailable, "SlowDown")
	case "error":
		refuse(w, http.StatusInternalServerError, "InternalError")
	case "expired":
		refuse(w, http.StatusBadRequest, "ExpiredToken")
	case "gone":
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case "before":
		panic(http.ErrAbortHandler)
	case "cut":
		answer := httptest.NewRecorder()
		f.pass(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		content := answer.Body.Bytes()
		if len(content) == 0 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content)+1))
		w.WriteHeader(answer.Code)
		w.Write(content[:len(content)/2])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	default:
		refuse(w, http.StatusNotImplemented, "NoSuchFault")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	io.WriteString(w, "<Error><Code>"+code+"</Code><Message>as the test asked</Message></Error>")
}

// The test's own requests.
func (f *front) told(w http.ResponseWriter, r *http.Request) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	asked := r.URL.Query()
	switch r.URL.Path {
	case "/-/counts":
		json.NewEncoder(w).Encode(f.counts)
	case "/-/log":
		json.NewEncoder(w).Encode(f.log)
	case "/-/reset":
		f.counts, f.log, f.delay, f.fault, f.made = map[string]int{}, []string{}, 0, fault{}, 0
	case "/-/delay":
		ms, err := strconv.Atoi(asked.Get("ms"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.delay = time.Duration(ms) * time.Millisecond
	case "/-/made":
		objects, err := strconv.Atoi(asked.Get("objects"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.made = objects
	case "/-/fault":
		every, err := strconv.Atoi(asked.Get("every"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		after, err := strconv.Atoi(asked.Get("after"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		f.fault = fault{Kind: asked.Get("kind"), Method: asked.Get("method"), Since: asked.Get("since"), Every: every, After: after}
	default:
		http.NotFound(w, r)
	}
}
