/** What a client program gets to know of the server that it is configured for. */

export interface ServedModel {
  /** Without a slash at its end. */
  readonly url: string;
  readonly model: string;
  readonly mode: string;
  readonly backend: string;
  /** In tokens; null: the server does not say. */
  readonly contextWindow: number | null;
  readonly maxOutputTokens: number | null;
}

export interface ClientServer {
  readonly served: ServedModel;
  /** null: the server asks for none. */
  readonly key: string | null;
}

/** Under this name a client keeps the server among its own. */
export const PROVIDER = "mlx-dspark";

/** The variable that holds the key where a client reads it from the environment. */
export const KEY_VARIABLE = "MLX_DSPARK_KEY";

/** For clients that insist on a key where the server asks for none. */
export const ANY_KEY = "mlx-dspark";
