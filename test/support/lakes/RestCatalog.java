import jakarta.servlet.DispatcherType;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletRequestWrapper;
import jakarta.servlet.http.HttpServletResponse;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.iceberg.Files;
import org.apache.iceberg.aws.s3.S3FileIO;
import org.apache.iceberg.io.FileIO;
import org.apache.iceberg.io.InputFile;
import org.apache.iceberg.io.OutputFile;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.HTTPRequest;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.apache.iceberg.rest.RESTResponse;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.FilterHolder;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * Iceberg's own REST catalog over SQLite, whose tables are in S3, or on a disk: `RestCatalog PORT WAREHOUSE TOKEN ENDPOINT KEY SECRET FILE`. What hosted catalogs have and the adapter lacks is added: its
 * paths begin with a prefix, requests need a token (TOKEN, or one of OAuth 2 by the client `reader` and `a-client-secret`),
 * and whoever asks for credentials of S3 gets them.
 */
public class RestCatalog {
  static final String PREFIX = "ware%20house";

  public static void main(String[] args) throws Exception {
    String token = args[2];
    Map<String, String> s3 = new HashMap<>();
    boolean isOnDisk = args[3].isEmpty();
    s3.put("s3.endpoint", args[3]);
    s3.put("s3.path-style-access", "true");
    s3.put("client.region", "us-east-1");
    Map<String, String> vended = new HashMap<>(s3);
    vended.put("s3.access-key-id", args[4]);
    vended.put("s3.secret-access-key", args[5]);
    vended.put("s3.session-token-expires-at-ms", Long.toString(System.currentTimeMillis() + 3_600_000));
    Map<String, String> own = new HashMap<>(vended);
    own.remove("s3.session-token-expires-at-ms");
    own.put("warehouse", args[1]);
    own.put("uri", "jdbc:sqlite:" + args[6]);
    JdbcCatalog catalog = new JdbcCatalog(properties -> {
      FileIO files = isOnDisk ? new Disk() : new S3FileIO();
      files.initialize(properties);
      return files;
    }, null, true);
    catalog.initialize("tests", own);

    RESTCatalogAdapter adapter = new RESTCatalogAdapter(catalog) {
      @Override
      protected <T extends RESTResponse> T execute(
          HTTPRequest request,
          Class<T> type,
          Consumer<ErrorResponse> onError,
          Consumer<Map<String, String>> onHeaders) {
        T answer = super.execute(request, type, onError, onHeaders);
        if (answer instanceof LoadTableResponse) {
          LoadTableResponse loaded = (LoadTableResponse) answer;
          boolean isVending = request.headers().contains("X-Iceberg-Access-Delegation");
          return type.cast(LoadTableResponse.builder()
              .withTableMetadata(loaded.tableMetadata())
              .addAllConfig(isOnDisk ? Map.of() : isVending ? vended : s3)
              .build());
        }
        return answer;
      }
    };
    ServletContextHandler handler = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    handler.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    handler.addFilter(new FilterHolder((given, answer, next) -> {
      HttpServletRequest request = (HttpServletRequest) given;
      HttpServletResponse response = (HttpServletResponse) answer;
      String path = request.getRequestURI();
      String said = request.getHeader("Authorization");
      if (path.equals("/v1/oauth/tokens")) {
        boolean isClient = "reader".equals(request.getParameter("client_id"))
            && "a-client-secret".equals(request.getParameter("client_secret"));
        send(response, isClient ? 200 : 401, isClient
            ? "{\"access_token\":\"of-a-client\",\"token_type\":\"bearer\",\"expires_in\":3600}"
            : "{\"error\":\"invalid_client\",\"error_description\":\"no such client\"}");
      } else if (!("Bearer " + token).equals(said) && !"Bearer of-a-client".equals(said)) {
        send(response, 401, "{\"error\":{\"message\":\"who are you?\",\"type\":\"NotAuthorizedException\",\"code\":401}}");
      } else if (path.equals("/v1/config")) {
        boolean isKnown = "tests".equals(request.getParameter("warehouse"));
        send(response, isKnown ? 200 : 404, isKnown
            ? "{\"defaults\":{},\"overrides\":{\"prefix\":\"" + PREFIX + "\"}}"
            : "{\"error\":{\"message\":\"there is no such warehouse\",\"type\":\"NotFoundException\",\"code\":404}}");
      } else if (path.startsWith("/v1/" + PREFIX + "/")) {
        next.doFilter(new HttpServletRequestWrapper(request) {
          @Override
          public String getRequestURI() {
            return "/v1/" + path.substring(PREFIX.length() + 5);
          }
        }, response);
      } else {
        send(response, 404, "{\"error\":{\"message\":\"no such path\",\"type\":\"NotFoundException\",\"code\":404}}");
      }
    }), "/*", EnumSet.of(DispatcherType.REQUEST));
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
    server.setHandler(handler);
    server.start();
    server.join();
  }

  static class Disk implements FileIO {
    static java.io.File file(String uri) {
      return new java.io.File(uri.replaceFirst("^file:(//)?", ""));
    }

    @Override
    public InputFile newInputFile(String uri) {
      return Files.localInput(file(uri));
    }

    @Override
    public OutputFile newOutputFile(String uri) {
      return Files.localOutput(file(uri));
    }

    @Override
    public void deleteFile(String uri) {
      file(uri).delete();
    }
  }

  static void send(HttpServletResponse response, int status, String text) throws java.io.IOException {
    response.setStatus(status);
    response.setContentType("application/json");
    response.getWriter().write(text);
  }
}
